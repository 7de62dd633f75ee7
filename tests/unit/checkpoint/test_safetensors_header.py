"""The safetensors header reader against the library: what it refuses, and that it stays bounded."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import safetensors
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from compiler.checkpoint import CheckpointError, ProblemCode, TensorEntry, parse_header
from compiler.checkpoint.layout import SAFETENSORS_BITS
from compiler.checkpoint.safetensors import MAX_HEADER_BYTES, check_header, read_head, read_header

GOOD = save({"a": np.zeros((2, 3), np.float32), "b": np.ones(5, np.int8), "c": np.zeros((0, 4), np.float16)})


def packed(header: object, data: bytes = b"") -> bytes:
    """A file with this header, written as JSON, and this data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def tensor(dtype: str = "F32", shape: object = (1,), offsets: object = (0, 4)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def parsed(file: bytes) -> dict[str, TensorEntry]:
    return parse_header(file, len(file), "f.safetensors")


def library_accepts(file: bytes) -> bool:
    try:
        safetensors.deserialize(file)
    except Exception:
        return False
    return True


def reader_accepts(file: bytes) -> bool:
    try:
        parsed(file)
    except CheckpointError:
        return False
    return True


def code_of(file: bytes, size: int | None = None) -> str:
    with pytest.raises(CheckpointError) as caught:
        parse_header(file, len(file) if size is None else size, "f.safetensors")
    return caught.value.code


@pytest.mark.pitfall("S26")
def test_a_good_file_is_read_as_the_library_reads_it() -> None:
    entries = parsed(GOOD)
    expected = {
        name: (item["dtype"], tuple(item["shape"]), item["data"])
        for name, item in safetensors.deserialize(GOOD)
    }
    read = {n: (e.dtype, e.shape, GOOD[e.offset : e.offset + e.nbytes]) for n, e in entries.items()}
    assert read == expected


REFUSED = {
    "overlap (U27)": packed({"a": tensor(), "b": tensor(offsets=(2, 6))}, bytes(6)),
    "gap (U27)": packed({"a": tensor(), "b": tensor(offsets=(8, 12))}, bytes(12)),
    "trailing bytes (U27)": packed({"a": tensor()}, bytes(5)),
    "reversed offsets (U27)": packed({"a": tensor(offsets=(4, 0))}, bytes(4)),
    "shape overflow (U27)": packed({"a": tensor(shape=(1 << 62, 1 << 62))}, bytes(4)),
    "shape against dtype (U27)": packed({"a": tensor("F16")}, bytes(4)),
    "data too short (S26)": packed({"a": tensor()}, bytes(3)),
    "header of 2^60 bytes (S26)": (1 << 60).to_bytes(8, "little") + b"{}",
    "header longer than the file (U24)": (100).to_bytes(8, "little") + b"{}",
    "header over 100 MB (U24)": (MAX_HEADER_BYTES + 1).to_bytes(8, "little") + b"{}",
    "shorter than a length": b"\x01\x02",
    "unknown dtype": packed({"a": tensor("F33")}, bytes(4)),
    "negative size": packed({"a": tensor(shape=(-1,))}, bytes(4)),
    "size that is no integer": packed({"a": tensor(shape=(1.0,))}, bytes(4)),
    "missing field": packed({"a": {"dtype": "F32", "shape": [1]}}, bytes(4)),
    "not an object": packed([1, 2]),
    "not JSON": packed(b"{nope"),
    "not UTF-8": packed(b'{"\xff": 1}'),
    "nested too deep": packed(b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"),
    "metadata that is no text": packed({"__metadata__": {"a": 1}}),
    "a number where a tensor belongs": packed({"a": 7}),
}


@pytest.mark.pitfall("S26", "U24", "U27")
@pytest.mark.parametrize("file", REFUSED.values(), ids=REFUSED.keys())
def test_the_library_and_the_reader_both_refuse(file: bytes) -> None:
    assert (library_accepts(file), reader_accepts(file)) == (False, False)


@pytest.mark.parametrize("dtype", SAFETENSORS_BITS)
def test_every_element_type_has_the_size_that_the_library_gives_it(dtype: str) -> None:
    file = packed({"a": tensor(dtype, (8,), (0, SAFETENSORS_BITS[dtype]))}, bytes(SAFETENSORS_BITS[dtype]))
    assert (library_accepts(file), reader_accepts(file)) == (True, True)


def test_a_tensor_named_twice_is_refused() -> None:
    one = b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    assert code_of(packed(b"{" + one + b"," + one + b"}", bytes(4))) == ProblemCode.BAD_HEADER


@pytest.mark.pitfall("S26", "S27")
@pytest.mark.parametrize(
    ("file", "code"),
    [
        (GOOD[:-1], ProblemCode.TRUNCATED_FILE),
        (GOOD[:20], ProblemCode.TRUNCATED_FILE),
        (GOOD + b"x", ProblemCode.TRAILING_DATA),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", ProblemCode.LFS_POINTER),
        (b"PK\x03\x04" + bytes(60), ProblemCode.UNEXPECTED_PICKLE),
        (b"\x80\x02}q\x00X\x01\x00\x00\x00aK\x01s.", ProblemCode.UNEXPECTED_PICKLE),
        (b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00", ProblemCode.UNEXPECTED_PICKLE),
        (b"<!DOCTYPE html><html>not found</html>", ProblemCode.BAD_HEADER),
    ],
)
def test_each_kind_of_damage_has_its_code(file: bytes, code: ProblemCode) -> None:
    assert code_of(file) == code


def test_a_length_that_looks_like_a_pickle_is_still_a_length() -> None:
    text = b"{" + b" " * (0x4B0280 - 2) + b"}"
    assert parsed(packed(text)) == {}


def test_a_header_that_was_sent_short_says_so() -> None:
    assert code_of(GOOD[:40], len(GOOD)) == ProblemCode.BAD_HEADER


def test_the_head_of_a_file_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "f.safetensors"
    path.write_bytes(GOOD)
    head = read_head(path, path.name)
    assert len(head) < len(GOOD)
    assert parse_header(head, len(GOOD), path.name) == read_header(path, path.name)


def test_a_header_parsed_by_the_client_is_checked_alike() -> None:
    raw = json.loads(GOOD[8 : 8 + int.from_bytes(GOOD[:8], "little")])
    read = {name: (e.dtype, e.shape, e.nbytes) for name, e in check_header(raw, len(GOOD), "f").items()}
    assert read == {name: (e.dtype, e.shape, e.nbytes) for name, e in parsed(GOOD).items()}


@pytest.mark.pitfall("S26", "U27")
@given(st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_damage_escapes_as_another_error_or_past_the_library(data: st.DataObject) -> None:
    file = bytearray(GOOD[: data.draw(st.integers(0, len(GOOD)))])
    flips = data.draw(st.lists(st.integers(0, max(len(file) * 8 - 1, 0)), max_size=3)) if file else []
    damaged = bytes(_flipped(file, flips))
    assert not reader_accepts(damaged) or library_accepts(damaged)


def _flipped(file: bytearray, flips: list[int]) -> bytearray:
    for flip in flips:
        file[flip // 8] ^= 1 << (flip % 8)
    return file


BOMBS = {
    "many empty objects": b'{"a":[' + b"{}," * 2_000_000 + b"{}]}",
    "many numbers": b'{"a":[' + b"0," * 5_000_000 + b"0]}",
    "many brackets": b'{"a":' + b"[" * 3_000_000,
}


@pytest.mark.pitfall("S26", "U24")
@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS.keys())
def test_a_header_full_of_values_is_refused_before_it_is_parsed(text: bytes) -> None:
    file = packed(text)
    tracemalloc.start()
    code = code_of(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert code == ProblemCode.BAD_HEADER
    assert peak < 2 * len(file) + (1 << 20)
