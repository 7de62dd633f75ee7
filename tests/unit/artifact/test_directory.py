"""Artifacts as directories: written whole or not at all, and damaged ones refused with a typed error."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compiler.artifact import ArtifactError, Bucket, decode_manifest, open_artifact
from compiler.artifact.writer import PAGE, ArtifactWriter
from compiler.codegen.layout import unpack
from compiler.codegen.toolchain import Toolchain
from compiler.runtime import load_program
from tests.support.tiny_program import DIMS, MODEL, TinyWeights, tiny_program, write_tiny_artifact

SEVERAL = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)


@pytest.fixture
def copy(artifact: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(artifact, tmp_path / "copy"))


def test_an_artifact_holds_what_was_written(artifact: Path) -> None:
    opened = open_artifact(artifact)
    table, head = opened.manifest.weights
    raw = opened.file(table.file, verify=True).read_bytes()[table.offset :][: table.nbytes]
    assert raw == TinyWeights.random().table.tobytes()
    packed = opened.file(head.file, verify=True).read_bytes()[head.offset :][: head.nbytes]
    matrix = unpack(np.frombuffer(packed, np.uint8), head.layout, (70, 5))
    assert np.array_equal(matrix, TinyWeights.random().head)


def test_every_digest_is_right(artifact: Path) -> None:
    opened = open_artifact(artifact)
    opened.verify()
    assert "report.json" in opened.manifest.files


def test_nothing_else_lies_in_the_directory(artifact: Path) -> None:
    listed = set(open_artifact(artifact).manifest.files) | {"manifest.json"}
    assert {str(p.relative_to(artifact)) for p in artifact.rglob("*") if p.is_file()} == listed


def test_a_program_needs_its_kernels_and_its_weights_only(artifact: Path) -> None:
    opened = open_artifact(artifact)
    needed = opened.files_of(opened.manifest.programs[0])
    assert needed == set(opened.manifest.files) - {"report.json"}


def test_the_same_content_has_the_same_manifest(artifact: Path, tmp_path: Path, toolchain: Toolchain) -> None:
    write_tiny_artifact(tmp_path / "again", toolchain)
    assert (tmp_path / "again" / "manifest.json").read_bytes() == (artifact / "manifest.json").read_bytes()


def test_large_weights_start_on_pages_and_small_ones_on_cache_lines(tmp_path: Path) -> None:
    (tmp_path / "kernels").write_bytes(b"never run")
    program = replace(tiny_program("portable"), buckets=(Bucket((), ()),))
    with ArtifactWriter(tmp_path / "a") as writer:
        writer.add_weight("small", np.zeros(3, np.float32))
        writer.add_weight("large", np.zeros(PAGE, np.float32))
        writer.add_weight("last", np.zeros(5, np.float32))
        writer.add_kernels("portable", tmp_path / "kernels")
        manifest = writer.finish(target="cpu", dims=DIMS, model=MODEL, programs=[program])
    assert [w.offset for w in manifest.weights] == [0, PAGE, 5 * PAGE]


def test_an_earlier_artifact_is_replaced(tmp_path: Path, toolchain: Toolchain) -> None:
    write_tiny_artifact(tmp_path / "a", toolchain, seed=1)
    before = weights_files(tmp_path / "a")
    write_tiny_artifact(tmp_path / "a", toolchain, seed=2)
    assert not before & weights_files(tmp_path / "a")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_somebodys_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("four years of work")
    with pytest.raises(ArtifactError, match="no artifact"):
        ArtifactWriter(tmp_path)


def test_an_unfinished_artifact_leaves_nothing(tmp_path: Path) -> None:
    with ArtifactWriter(tmp_path / "a") as writer:
        writer.add_weight("table", np.zeros(5, np.float32))
    assert list(tmp_path.iterdir()) == []


def test_an_artifact_that_contradicts_itself_never_appears(tmp_path: Path) -> None:
    with ArtifactWriter(tmp_path / "a") as writer, pytest.raises(ArtifactError):
        writer.finish(target="cpu", dims=DIMS, model=MODEL, programs=[])
    assert not (tmp_path / "a").exists()


def test_an_element_type_that_artifacts_do_not_hold_is_refused(tmp_path: Path) -> None:
    with ArtifactWriter(tmp_path / "a") as writer, pytest.raises(ArtifactError, match="float64"):
        writer.add_weight("table", np.zeros(5))


@pytest.mark.parametrize("name", ["manifest.json", "kernels/portable.so"])
def test_a_missing_file_is_named(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(ArtifactError, match=name):
        load_program(copy, threads=1, kv_blocks=5)


@pytest.mark.pitfall("C28")
def test_a_truncated_weights_file_is_refused_before_it_is_mapped(copy: Path) -> None:
    place = largest_weights(copy)
    place.write_bytes(place.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match="bytes, expected"):
        load_program(copy, threads=1, kv_blocks=5)


def test_a_link_is_no_file_of_an_artifact(copy: Path, tmp_path: Path) -> None:
    place = copy / "kernels" / "portable.so"
    place.rename(tmp_path / "elsewhere.so")
    place.symlink_to(tmp_path / "elsewhere.so")
    with pytest.raises(ArtifactError, match="not a regular file"):
        load_program(copy, threads=1, kv_blocks=5)


def test_a_linked_folder_is_none_either(copy: Path, tmp_path: Path) -> None:
    (copy / "kernels").rename(tmp_path / "kernels")
    (copy / "kernels").symlink_to(tmp_path / "kernels")
    with pytest.raises(ArtifactError, match="not a regular file"):
        load_program(copy, threads=1, kv_blocks=5)


def test_the_artifact_itself_may_be_a_link(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(copy)
    with load_program(tmp_path / "current", threads=1, kv_blocks=5) as program:
        assert program.level == "portable"


def test_a_file_that_is_not_listed_is_not_handed_out(artifact: Path) -> None:
    with pytest.raises(ArtifactError, match="not a file"):
        open_artifact(artifact).file("../elsewhere", verify=False)


def flipped(data: bytes, bit: int) -> bytes:
    at, mask = bit // 8 % len(data), 1 << bit % 8
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


@SEVERAL
@given(bit=st.integers(0, 1 << 40))
def test_a_flipped_bit_in_the_manifest_is_caught_or_without_meaning(artifact: Path, bit: int) -> None:
    data = (artifact / "manifest.json").read_bytes()
    assert refuses(flipped(data, bit)) or decode_manifest(flipped(data, bit)) == decode_manifest(data)


@SEVERAL
@given(length=st.integers(0, 1 << 40))
def test_a_truncated_manifest_is_refused(artifact: Path, length: int) -> None:
    data = (artifact / "manifest.json").read_bytes()
    assert refuses(data[: length % (len(data) - 1)])


@SEVERAL
@given(noise=st.binary(max_size=300), at=st.integers(0, 1 << 40))
def test_noise_in_the_manifest_is_refused(artifact: Path, noise: bytes, at: int) -> None:
    data = (artifact / "manifest.json").read_bytes()
    start = at % len(data)
    changed = data[:start] + noise + data[start + len(noise) :]
    assert changed == data or refuses(changed)


@pytest.mark.pitfall("C28")
@SEVERAL
@given(bit=st.integers(0, 1 << 40))
def test_a_flipped_bit_in_the_kernels_is_always_caught(artifact: Path, copy: Path, bit: int) -> None:
    good = (artifact / "kernels" / "portable.so").read_bytes()
    (copy / "kernels" / "portable.so").write_bytes(flipped(good, bit))
    with pytest.raises(ArtifactError, match="digest"):
        load_program(copy, threads=1, kv_blocks=5)


@SEVERAL
@given(bit=st.integers(0, 1 << 40))
def test_a_flipped_bit_in_the_weights_is_caught_by_verifying(artifact: Path, copy: Path, bit: int) -> None:
    place = largest_weights(copy)
    place.write_bytes(flipped((artifact / "weights" / place.name).read_bytes(), bit))
    with pytest.raises(ArtifactError, match="digest"):
        load_program(copy, threads=1, kv_blocks=5, verify=True)


def refuses(manifest: bytes) -> bool:
    try:
        decode_manifest(manifest)
    except ArtifactError:
        return True
    return False


def weights_files(root: Path) -> set[str]:
    return {p.name for p in (root / "weights").iterdir()}


def largest_weights(root: Path) -> Path:
    return max((root / "weights").iterdir(), key=lambda p: p.stat().st_size)
