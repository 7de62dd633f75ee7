"""The GGUF container reader against the `gguf` package, and against damaged files."""

from __future__ import annotations

import struct
import tracemalloc
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compiler.checkpoint import CheckpointError, ProblemCode, parse_gguf
from compiler.checkpoint.ggml_types import GGML_TYPES
from compiler.checkpoint.gguf import read_gguf, read_gguf_head
from tests.support.tiny_gguf import write_tiny_gguf


@lru_cache
def small_file() -> bytes:
    """A GGUF with one key of each kind and two tensors; small, so that random damage hits its head."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_uint32("u", 7)
        writer.add_float32("f", 0.5)
        writer.add_bool("b", True)
        writer.add_string("s", "é")
        writer.add_array("ints", [1, 2, 3])
        writer.add_array("texts", ["a", "", "c"])
        for name in ("x", "y"):
            writer.add_tensor(
                name,
                gguf.quantize(_ramp(), gguf.GGMLQuantizationType.Q8_0),
                raw_dtype=gguf.GGMLQuantizationType.Q8_0,
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path.read_bytes()


def _ramp() -> gguf.np.ndarray:
    return gguf.np.arange(64, dtype=gguf.np.float32).reshape(2, 32)


def code_of(file: bytes, size: int | None = None) -> str:
    with pytest.raises(CheckpointError) as caught:
        parse_gguf(file, len(file) if size is None else size, "m.gguf")
    return caught.value.code


def patched(at: int, value: bytes) -> bytes:
    file = bytearray(small_file())
    file[at : at + len(value)] = value
    return bytes(file)


def header(keys: bytes = b"", key_count: int = 0, tensors: bytes = b"", tensor_count: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensor_count, key_count) + keys + tensors


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def info(name: str, sizes: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


def test_metadata_is_what_the_package_reads(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", "biases", "Q4_1")
    fields = gguf.GGUFReader(path).fields
    expected = {name: field.contents() for name, field in fields.items() if not name.startswith("GGUF.")}
    assert dict(read_gguf(path, "m.gguf").metadata) == expected


def test_tensors_lie_where_the_package_finds_them(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", "gqa", "Q8_0")
    expected = {
        t.name: (t.tensor_type.name, tuple(int(n) for n in t.shape[::-1]), t.data_offset, t.n_bytes)
        for t in gguf.GGUFReader(path).tensors
    }
    read = {n: (e.dtype, e.shape, e.offset, e.nbytes) for n, e in read_gguf(path, "m.gguf").tensors.items()}
    assert read == expected


def test_block_sizes_are_those_of_the_package() -> None:
    expected = {
        int(kind): gguf.GGML_QUANT_SIZES[kind] for kind in gguf.GGML_QUANT_SIZES if int(kind) in GGML_TYPES
    }
    assert {number: (block.elements, block.nbytes) for number, block in GGML_TYPES.items()} == expected


def test_the_head_of_a_file_is_enough(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf")
    head = read_gguf_head(path, "m.gguf")
    assert parse_gguf(head, path.stat().st_size, "m.gguf") == read_gguf(path, "m.gguf")


DAMAGE = {
    "empty": (b"", ProblemCode.TRUNCATED_FILE),
    "another magic": (b"GGML" + bytes(40), ProblemCode.BAD_HEADER),
    "version 1": (b"GGUF" + struct.pack("<I", 1) + bytes(40), ProblemCode.UNSUPPORTED_GGUF),
    "big-endian": (b"GGUF" + struct.pack(">I", 3) + bytes(40), ProblemCode.UNSUPPORTED_GGUF),
    "2^60 tensors": (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), ProblemCode.BAD_HEADER),
    "2^60 keys": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), ProblemCode.BAD_HEADER),
    "more keys than bytes": (header(key_count=5), ProblemCode.TRUNCATED_FILE),
    "string of 2^62 bytes": (header(struct.pack("<Q", 1 << 62), 1) + bytes(8), ProblemCode.BAD_HEADER),
    "array of 2^40 items": (
        header(text("k") + struct.pack("<IIQ", 9, 8, 1 << 40), 1),
        ProblemCode.BAD_HEADER,
    ),
    "array that is not there": (
        header(text("k") + struct.pack("<IIQ", 9, 4, 3_000_000), 1),
        ProblemCode.TRUNCATED_FILE,
    ),
    "unknown value type": (header(text("k") + struct.pack("<I", 99) + bytes(8), 1), ProblemCode.BAD_HEADER),
    "arrays within arrays": (
        header(text("k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9, 1),
        ProblemCode.BAD_HEADER,
    ),
    "a key twice": (
        header((text("k") + struct.pack("<II", 4, 1)) * 2, 2),
        ProblemCode.BAD_HEADER,
    ),
    "alignment that is no power of two": (
        header(text("general.alignment") + struct.pack("<II", 4, 33), 1),
        ProblemCode.BAD_HEADER,
    ),
    "unknown tensor type": (
        header(tensors=info("a", (32,), 250, 0), tensor_count=1),
        ProblemCode.UNSUPPORTED_DTYPE,
    ),
    "five dimensions": (
        header(tensors=info("a", (1, 1, 1, 1, 1), 0, 0), tensor_count=1),
        ProblemCode.BAD_HEADER,
    ),
    "row that is no multiple of its block": (
        header(tensors=info("a", (33,), 8, 0), tensor_count=1) + bytes(64),
        ProblemCode.BAD_HEADER,
    ),
    "size that overflows": (
        header(tensors=info("a", (1 << 40, 1 << 40), 0, 0), tensor_count=1),
        ProblemCode.BAD_HEADER,
    ),
    "tensor past the end": (
        header(tensors=info("a", (1 << 20,), 0, 0), tensor_count=1) + bytes(64),
        ProblemCode.TRUNCATED_FILE,
    ),
    "offset off its alignment": (
        header(tensors=info("a", (1,), 0, 4), tensor_count=1) + bytes(64),
        ProblemCode.BAD_HEADER,
    ),
    "tensors that overlap": (
        header(tensors=info("a", (8,), 0, 0) + info("b", (8,), 0, 0), tensor_count=2) + bytes(256),
        ProblemCode.BAD_HEADER,
    ),
    "pointer (S26)": (b"version https://git-lfs.github.com/spec/v1\noid", ProblemCode.LFS_POINTER),
    "pickle": (b"PK\x03\x04" + bytes(64), ProblemCode.UNEXPECTED_PICKLE),
}


@pytest.mark.pitfall("S26")
@pytest.mark.parametrize(("file", "code"), DAMAGE.values(), ids=DAMAGE.keys())
def test_each_kind_of_damage_has_its_code(file: bytes, code: ProblemCode) -> None:
    assert code_of(file) == code


def test_a_head_that_was_sent_short_says_so() -> None:
    assert code_of(small_file()[:60], len(small_file())) == ProblemCode.BAD_HEADER


@given(st.data())
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_damage_escapes_as_another_error(data: st.DataObject) -> None:
    whole = small_file()
    cut = data.draw(st.integers(0, len(whole)))
    flips = data.draw(st.lists(st.integers(0, max(cut * 8 - 1, 0)), max_size=4))
    assert _outcome(_damaged(whole[:cut], flips)) in ("read", "refused")


@pytest.mark.pitfall("S26")
@given(st.integers(0, 200), st.binary(min_size=8, max_size=8))
@settings(max_examples=200, deadline=None)
def test_a_hostile_count_allocates_nothing_like_what_it_claims(at: int, value: bytes) -> None:
    file = patched(at, value)
    tracemalloc.start()
    _outcome(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def _damaged(file: bytes, flips: list[int]) -> bytes:
    damaged = bytearray(file)
    for flip in flips if file else []:
        damaged[flip // 8] ^= 1 << (flip % 8)
    return bytes(damaged)


def _outcome(file: bytes) -> str:
    try:
        parse_gguf(file, len(file), "m.gguf")
    except CheckpointError:
        return "refused"
    return "read"
