"""Binaries for GPUs that are not here: manifest, limits, and the same bytes every time."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path

import pytest
import triton.backends.nvidia

from compiler.checkpoint import config_from_hf
from compiler.codegen.triton import (
    TARGETS,
    Binary,
    BuildStopped,
    UnknownGpuTarget,
    compile_definition,
    compile_model_kernels,
    gpu_target,
)
from compiler.ir import Graph
from compiler.search.arrange import arrange
from compiler.search.cuts import starting_cuts
from compiler.zoo import StepLimits
from compiler.zoo.llama import build_llama
from tests.support.programs import graph_of
from tests.support.tiny_checkpoints import TINY, tiny_config

CUOBJDUMP = Path(triton.backends.nvidia.__file__).parent / "bin" / "cuobjdump"


def tiny_llama() -> Graph:
    return build_llama(
        config_from_hf(tiny_config(TINY["gqa"])), dtype="bf16", max_context=64, limits=StepLimits(64, 4, 64)
    )


def built(program: str, target: str, work_dir: Path) -> Binary:
    """The first kernel of a program of the library."""
    graph = graph_of(program)
    definition = next(iter(arrange(graph, starting_cuts(graph)).distinct().values()))
    return compile_definition(definition, [s.name for s in graph.symbols], gpu_target(target), work_dir)


@pytest.fixture(scope="module")
def folder(report) -> Path:
    """A tiny Llama's kernels for sm_90."""
    return Path(report["directory"])


@pytest.fixture(scope="module")
def manifest(folder) -> dict:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return json.loads((folder / "manifest.json").read_text(), parse_constant=refuse)


def test_the_manifest_names_every_file_with_its_digest(folder, manifest):
    listed = {k["file"]: k["sha256"] for k in manifest["kernels"]}
    found = {
        f"kernels/{p.name}": hashlib.sha256(p.read_bytes()).hexdigest()
        for p in folder.glob("kernels/*.cubin")
    }
    assert len(found) >= 14
    assert listed == found


def test_every_launch_names_a_kernel_and_a_buffer_for_each_pointer(manifest):
    pointers = {
        k["key"]: [a["type"] for a in k["signature"] if a["type"].startswith("*")]
        for k in manifest["kernels"]
    }
    dtypes = {"f32": "*fp32", "bf16": "*bf16", "i32": "*i32"}
    launches = [launch for stage in manifest["stages"] for launch in stage]
    given = [[dtypes[manifest["buffers"][b]["dtype"]] for b in launch["arguments"]] for launch in launches]
    assert given == [pointers[launch["kernel"]] for launch in launches]


def test_every_kernel_takes_the_sizes_in_the_manifests_order(manifest):
    order = [f"D_{d['name']}" for d in manifest["dims"]]
    taken = [[a["name"] for a in k["signature"] if a["type"] == "i32"] for k in manifest["kernels"]]
    assert taken == [order] * len(manifest["kernels"])


def test_every_kernel_keeps_to_the_limits_of_its_gpu(manifest):
    most = gpu_target("cuda-sm90").shared_bytes
    assert [k["key"] for k in manifest["kernels"] if k["shared_bytes"] > most or k["spilled_bytes"]] == []
    assert all(0 < k["registers"] <= 255 for k in manifest["kernels"])


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_a_product_is_built_for_every_target(target, tmp_path):
    binary = built("product_bf16", target, tmp_path)
    assert binary.code.startswith(b"\x7fELF")
    assert 0 < binary.registers <= 512


def test_registers_are_those_that_the_vendors_tool_reads(tmp_path):
    binary = built("causal_attention", "cuda-sm90", tmp_path)
    (tmp_path / "kernel.cubin").write_bytes(binary.code)
    said = subprocess.run(
        [CUOBJDUMP, "-res-usage", tmp_path / "kernel.cubin"], capture_output=True, text=True, check=True
    ).stdout
    assert re.findall(r"REG:(\d+) STACK:(\d+)", said) == [(str(binary.registers), str(binary.spilled_bytes))]


def test_building_twice_in_two_folders_gives_the_same_bytes(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    assert built("swiglu", "cuda-sm90", first).code == built("swiglu", "cuda-sm90", second).code


def test_an_unknown_target_is_refused_by_name(tmp_path):
    with pytest.raises(UnknownGpuTarget, match="cuda-sm91") as refused:
        compile_model_kernels(tiny_llama(), tmp_path, "cuda-sm91")
    assert refused.value.code == "unknown_target"


def test_a_stopped_build_leaves_no_manifest(tmp_path):
    with pytest.raises(BuildStopped):
        compile_model_kernels(tiny_llama(), tmp_path, "cuda-sm90", should_stop=lambda: True)
    assert list(tmp_path.iterdir()) == []
