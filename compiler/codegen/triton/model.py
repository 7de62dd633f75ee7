"""A whole model's kernels for a GPU: every distinct definition built once, and a manifest of the launches.

The folder holds `manifest.json`, written last, and `kernels/<key>.cubin` (or `.hsaco`). Weights stay where
they are: kernels read them row-major, in the element types that the manifest names.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from compiler.codegen.triton.binaries import Binary, compile_definition
from compiler.codegen.triton.edge import ALIGNMENT, triton_version
from compiler.codegen.triton.errors import BuildStopped
from compiler.codegen.triton.targets import GpuTarget, gpu_target
from compiler.ir.graph import Graph
from compiler.ir.ops import VIEWS
from compiler.lower.canonical import Buffer, Canonical, Role
from compiler.lower.precision import narrow_operands
from compiler.search.arrange import Arrangement, arrange, describe_buffers
from compiler.search.cuts import starting_cuts

FORMAT = "candela-gpu-kernels/1"
_KERNELS = "kernels"


@dataclass(frozen=True, slots=True)
class GpuReport:
    """What was built: distinct kernels, launches of one step, and bytes of binaries."""

    target: str
    directory: str
    kernels: int
    launches: int
    bytes: int


def compile_model_kernels(
    graph: Graph,
    out_dir: Path,
    target_name: str,
    on_progress: Callable[[float, str], None] = lambda fraction, message: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> GpuReport:
    """Build the kernels of one step of `graph` for a target such as "cuda-sm90". Needs no GPU.

    What meets a bf16 weight is rounded to bf16 first, as on a CPU with matrix tiles.

    Raises:
        UnknownGpuTarget: no such target.
        GpuExtraMissing: triton is not installed.
        KernelNotBuilt, LoweringError, FormationError: a definition has no kernel.
        BuildStopped: `should_stop` said so.
    """
    target, version = gpu_target(target_name), triton_version()
    on_progress(0.0, "lowering")
    graph = narrow_operands(graph)
    arrangement = arrange(graph, starting_cuts(graph))
    distinct = arrangement.distinct()
    dims = tuple(s.name for s in graph.symbols)
    binaries: dict[str, Binary] = {}
    with tempfile.TemporaryDirectory(prefix="candela-triton-") as folder:
        for number, (key, definition) in enumerate(distinct.items()):
            if should_stop():
                raise BuildStopped("the compile was stopped")
            on_progress(0.02 + 0.98 * number / len(distinct), f"building {key}")
            binaries[key] = compile_definition(definition, dims, target, Path(folder))
    manifest = _manifest(arrangement, binaries, target, version)
    _write(out_dir, manifest, binaries, target)
    on_progress(1.0, f"{len(binaries)} kernels")
    size = sum(len(b.code) for b in binaries.values())
    return GpuReport(target.name, str(out_dir), len(binaries), len(arrangement.instances), size)


def _write(
    out_dir: Path, manifest: Mapping[str, object], binaries: Mapping[str, Binary], target: GpuTarget
) -> None:
    (out_dir / _KERNELS).mkdir(parents=True, exist_ok=True)
    (out_dir / "manifest.json").unlink(missing_ok=True)
    for key, binary in binaries.items():
        (out_dir / _KERNELS / f"{key}.{target.extension}").write_bytes(binary.code)
    text = json.dumps(manifest, indent=1, allow_nan=False, ensure_ascii=False)
    (out_dir / "manifest.json").write_text(text + "\n", encoding="utf-8")


def _manifest(
    arrangement: Arrangement, binaries: Mapping[str, Binary], target: GpuTarget, version: str
) -> dict[str, object]:
    """Everything that a launcher needs; sizes are sums of products of the `dims`."""
    names = _names(arrangement)
    distinct = arrangement.distinct()
    return {
        "format": FORMAT,
        "target": target.name,
        "compiler": f"triton {version}",
        "alignment": ALIGNMENT,
        "dims": [{"name": s.name, "low": s.low, "high": s.high} for s in arrangement.graph.symbols],
        "buffers": _buffers(arrangement, names),
        "kernels": [_kernel(distinct[key], binary, target) for key, binary in binaries.items()],
        "stages": [
            [
                {
                    "kernel": arrangement.instances[d.name].canonical.key,
                    "arguments": [names[b] for b in arrangement.instances[d.name].arguments.values()],
                }
                for d in stage
            ]
            for stage in arrangement.plan
        ],
    }


def _kernel(definition: Canonical, binary: Binary, target: GpuTarget) -> dict[str, object]:
    return {
        "key": definition.key,
        "name": binary.symbol,
        "file": f"{_KERNELS}/{definition.key}.{target.extension}",
        "bytes": len(binary.code),
        "sha256": binary.sha256,
        "signature": [{"name": n, "type": t} for n, t in binary.signature.items()],
        "hidden_arguments": binary.hidden_arguments,
        "writes": definition.place.buffer,
        "grid": [{"extent": str(g.extent), "block": g.block} for g in binary.grid],
        "threads": binary.threads,
        "schedule": binary.schedule,
        "precision": binary.precision,
        "num_warps": binary.options.num_warps,
        "num_stages": binary.options.num_stages,
        "shared_bytes": binary.shared_bytes,
        "registers": binary.registers,
        "spilled_bytes": binary.spilled_bytes,
    }


def _names(arrangement: Arrangement) -> dict[str, str]:
    """What each buffer is called: inputs and outputs as in the graph, weights "w:...", values "d0" and so on.

    A definition that writes over a buffer is that buffer.
    """
    graph = arrangement.graph
    found = {f"in:{name}": name for name in graph.inputs} | {
        f"w:{name}": f"w:{name}" for name in graph.weights
    }
    by_node = {d.node: d.name for stage in arrangement.plan for d in stage}
    outputs: dict[str, str] = {}
    for name, node in graph.outputs.items():
        while node.op in VIEWS and node not in by_node:
            node = node.inputs[0]
        if name not in graph.aliases and node in by_node:
            outputs[by_node[node]] = name
    for stage in arrangement.plan:
        for d in stage:
            found[d.name] = found[d.aliases] if d.aliases is not None else outputs.get(d.name, d.name)
    return found


def _buffers(arrangement: Arrangement, names: Mapping[str, str]) -> dict[str, object]:
    definitions = [d for stage in arrangement.plan for d in stage]
    described = describe_buffers(arrangement.graph, definitions)
    over = {d.name for d in definitions if d.aliases is not None}
    return {
        names[name]: {
            "role": _role(names[name], b, arrangement.graph),
            "dtype": str(b.dtype),
            "shape": [str(n) for n in b.shape],
        }
        for name, b in described.items()
        if name not in over
    }


def _role(name: str, buffer: Buffer, graph: Graph) -> str:
    return "output" if buffer.role is Role.VALUE and name in graph.outputs else str(buffer.role)
