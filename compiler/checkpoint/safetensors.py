"""The header of a safetensors file, read with bounds: nothing is allocated that the file does not hold.

Source: https://github.com/huggingface/safetensors, "Format": the header's length in 8 bytes little-endian,
a JSON header, then the data, which the tensors must cover exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from compiler.checkpoint.errors import CheckpointError, ProblemCode, refusal
from compiler.checkpoint.layout import (
    MAX_RANK,
    MAX_TENSOR_NAME,
    MAX_TENSORS,
    SAFETENSORS_BITS,
    TensorEntry,
    byte_count,
)
from compiler.checkpoint.sniff import SNIFF_BYTES, sniff
from compiler.checkpoint.strict_json import is_int, parse_object, shown

MAX_HEADER_BYTES = 100_000_000
_PREFIX = 8
_COMMAS_PER_TENSOR = 16


def read_header(path: Path, where: str) -> dict[str, TensorEntry]:
    """Read and check the header of the file at `path`; at most 100 MB of it are read.

    Raises:
        CheckpointError: `truncated_file`, `trailing_data`, `bad_header`, `lfs_pointer`, `unexpected_pickle`.
    """
    return parse_header(read_head(path, where), path.stat().st_size, where)


def read_head(path: Path, where: str) -> bytes:
    """The bytes of the file that hold its header: what a client sends for triage."""
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(min(size, SNIFF_BYTES))
        rest = header_end(first, size, where) - len(first)
        return first + file.read(max(rest, 0))


def header_end(first: bytes, file_size: int, where: str) -> int:
    """Where the data starts, from the first 64 bytes of a file of `file_size` bytes."""
    problem = sniff(first, where)
    if problem is not None:
        raise CheckpointError([problem])
    if file_size < _PREFIX or len(first) < _PREFIX:
        message = f"{where} has {file_size} bytes; a safetensors file starts with an 8-byte length"
        raise refusal(ProblemCode.TRUNCATED_FILE, message, where)
    length = int.from_bytes(first[:_PREFIX], "little")
    if length > MAX_HEADER_BYTES:
        message = f"{where} claims a header of {length} bytes; at most {MAX_HEADER_BYTES} are allowed"
        raise refusal(ProblemCode.BAD_HEADER, message, where)
    if _PREFIX + length > file_size:
        message = f"{where} has {file_size} bytes but its header alone needs {_PREFIX + length}"
        raise refusal(ProblemCode.TRUNCATED_FILE, message, where)
    return _PREFIX + length


def parse_header(head: bytes, file_size: int, where: str) -> dict[str, TensorEntry]:
    """Check a header, given the first bytes of the file (at least up to the data) and the file's size."""
    end = header_end(head[:SNIFF_BYTES], file_size, where)
    if len(head) < end:
        message = f"{where}: {len(head)} bytes of its header were sent; {end} are needed"
        raise refusal(ProblemCode.BAD_HEADER, message, where)
    text = head[_PREFIX:end]
    if not text.startswith(b"{"):
        raise refusal(ProblemCode.BAD_HEADER, f"{where} is not a safetensors file: no JSON header", where)
    _check_density(text, where)
    raw = parse_object(text, where, ProblemCode.BAD_HEADER, max_bytes=MAX_HEADER_BYTES)
    return check_header(raw, file_size - end, where, data_start=end)


def check_header(
    raw: Mapping[str, object], data_bytes: int, where: str, data_start: int | None = None
) -> dict[str, TensorEntry]:
    """Check a header that is parsed already. Without `data_start` the size of the header is unknown, so that
    `data_bytes` is only an upper bound, and offsets count from the data instead of the file.
    """
    if len(raw) > MAX_TENSORS:
        message = f"{where} names {len(raw)} tensors; at most {MAX_TENSORS} are read"
        raise refusal(ProblemCode.BAD_HEADER, message, where)
    entries = {
        name: _entry(name, value, data_start or 0, where)
        for name, value in raw.items()
        if name != "__metadata__"
    }
    _check_metadata(raw.get("__metadata__"), where)
    _check_cover(entries, data_start or 0, data_bytes, data_start is not None, where)
    return entries


def _check_density(text: bytes, where: str) -> None:
    """Refuse text that would grow a hundredfold as Python objects; real headers are far from these bounds."""
    limits = ((b"{", 2 * MAX_TENSORS), (b"[", 4 * MAX_TENSORS), (b",", _COMMAS_PER_TENSOR * MAX_TENSORS))
    if any(text.count(mark) > limit for mark, limit in limits):
        raise refusal(ProblemCode.BAD_HEADER, f"{where}: the header holds too many values", where)


def _entry(name: str, value: object, data_start: int, where: str) -> TensorEntry:
    if not isinstance(value, Mapping) or not 0 < len(name) <= MAX_TENSOR_NAME:
        raise _bad(where, name, f"is described by {shown(value)}")
    if set(value) != {"dtype", "shape", "data_offsets"}:
        raise _bad(
            where, name, f"has fields {shown(sorted(value))}; dtype, shape and data_offsets are needed"
        )
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in SAFETENSORS_BITS:
        raise _bad(where, name, f"has dtype {shown(dtype)}, which safetensors does not know")
    if not isinstance(shape, list) or len(shape) > MAX_RANK or not all(is_int(n) and n >= 0 for n in shape):
        raise _bad(where, name, f"has shape {shown(shape)}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(is_int(n) and n >= 0 for n in offsets):
        raise _bad(where, name, f"has data_offsets {shown(offsets)}")
    start, end = offsets
    needed = byte_count(tuple(shape), SAFETENSORS_BITS[dtype])
    if start > end or needed is None or needed != end - start:
        raise _bad(where, name, f"is {dtype} of shape {shown(shape)} but takes the bytes {start} to {end}")
    return TensorEntry(dtype, tuple(shape), data_start + start, needed)


def _check_metadata(metadata: object, where: str) -> None:
    if metadata is None:
        return
    if not isinstance(metadata, Mapping) or not all(isinstance(value, str) for value in metadata.values()):
        raise refusal(ProblemCode.BAD_HEADER, f"{where}: __metadata__ must map names to strings", where)


def _check_cover(
    entries: Mapping[str, TensorEntry], data_start: int, data_bytes: int, is_exact: bool, where: str
) -> None:
    """The tensors must cover the data from its first byte to its last, without gap or overlap."""
    position = data_start
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].offset, item[1].nbytes)):
        if entry.offset != position:
            word = "overlaps the tensor before it" if entry.offset < position else "leaves a gap before it"
            raise _bad(where, name, word)
        position += entry.nbytes
    end = data_start + data_bytes
    if position > end:
        message = (
            f"{where} ends after {data_bytes} bytes of data; its header promises {position - data_start}"
        )
        raise refusal(ProblemCode.TRUNCATED_FILE, message, where)
    if is_exact and position < end:
        message = f"{where} has {end - position} bytes after its last tensor"
        raise refusal(ProblemCode.TRAILING_DATA, message, where)


def _bad(where: str, name: str, what: str) -> CheckpointError:
    return refusal(ProblemCode.BAD_HEADER, f"{where}: tensor {shown(name)} {what}", where)
