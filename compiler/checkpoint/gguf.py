"""The GGUF container, versions 2 and 3: metadata and tensor places, read with bounds.

Knows nothing of models; `gguf_model.py` turns what is read here into a config and canonical names.
Source: https://github.com/ggml-org/ggml, docs/gguf.md.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from compiler.checkpoint.errors import CheckpointError, ProblemCode, refusal
from compiler.checkpoint.ggml_types import GGML_TYPES, BlockType
from compiler.checkpoint.layout import MAX_TENSORS, TensorEntry, byte_count
from compiler.checkpoint.sniff import SNIFF_BYTES, sniff
from compiler.checkpoint.strict_json import shown

GgufValue = int | float | bool | str | list["GgufValue"]

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_KEYS = 10_000
MAX_KEY_BYTES = 65_535
MAX_STRING_BYTES = 16 << 20
MAX_ARRAY = 4_000_000
MAX_METADATA_VALUES = 8_000_000
_MAX_DIMS = 4
_MAX_NESTING = 3
_STRING, _ARRAY = 8, 9
_SCALARS: Mapping[int, struct.Struct] = {
    number: struct.Struct("<" + letter)
    for number, letter in {
        0: "B",
        1: "b",
        2: "H",
        3: "h",
        4: "I",
        5: "i",
        6: "f",
        7: "?",
        10: "Q",
        11: "q",
        12: "d",
    }.items()
}
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class GgufFile:
    """What a GGUF file says about itself; tensor names are ggml's, shapes row-major."""

    version: int
    metadata: Mapping[str, GgufValue]
    tensors: Mapping[str, TensorEntry]
    data_start: int


def read_gguf(path: Path, where: str) -> GgufFile:
    """Read and check the container at `path` (mapped, not loaded).

    Raises:
        CheckpointError: `truncated_file`, `bad_header`, `unsupported_gguf`, `empty_file`, `lfs_pointer`.
    """
    with _mapped(path, where) as data:
        return parse_gguf(data, len(data), where)


def read_gguf_head(path: Path, where: str) -> bytes:
    """The bytes of the file that precede its tensors: what a client sends for triage."""
    with _mapped(path, where) as data:
        return bytes(data[: parse_gguf(data, len(data), where).data_start])


def parse_gguf(data: bytes | mmap.mmap, file_size: int, where: str) -> GgufFile:
    """Read the container from `data`: the whole file, or at least its bytes before the tensors."""
    problem = sniff(bytes(data[:SNIFF_BYTES]), where)
    if problem is not None:
        raise CheckpointError([problem])
    cursor = _Cursor(data, file_size, where)
    if cursor.take(4) != MAGIC:
        raise refusal(
            ProblemCode.BAD_HEADER, f"{where} is not a GGUF file: it does not start with GGUF", where
        )
    version = cursor.u32()
    if version not in VERSIONS:
        hint = (
            "; it is big-endian" if int.from_bytes(version.to_bytes(4, "big"), "little") in VERSIONS else ""
        )
        message = f"{where} has GGUF version {version}; 2 and 3 are read{hint}"
        raise refusal(ProblemCode.UNSUPPORTED_GGUF, message, where)
    tensor_count = cursor.count("tensors", MAX_TENSORS, bytes_each=24)
    key_count = cursor.count("metadata keys", MAX_KEYS, bytes_each=13)
    metadata: dict[str, GgufValue] = {}
    for _ in range(key_count):
        key = cursor.string(MAX_KEY_BYTES)
        if key in metadata:
            raise cursor.bad(f"names metadata key {shown(key)} twice")
        metadata[key] = cursor.value(cursor.u32(), 0)
    infos = _infos(cursor, tensor_count)
    alignment = _alignment(metadata, cursor)
    data_start = -(-cursor.position // alignment) * alignment
    tensors = {name: _entry(name, info, data_start, alignment, cursor) for name, info in infos.items()}
    _check_overlap(tensors, cursor)
    return GgufFile(version, metadata, tensors, data_start)


@dataclass(frozen=True, slots=True)
class _Info:
    shape: tuple[int, ...]
    type: BlockType
    offset: int


def _infos(cursor: _Cursor, count: int) -> dict[str, _Info]:
    infos: dict[str, _Info] = {}
    for _ in range(count):
        name = cursor.string(MAX_KEY_BYTES)
        if name in infos:
            raise cursor.bad(f"names tensor {shown(name)} twice")
        rank = cursor.u32()
        if rank > _MAX_DIMS:
            raise cursor.bad(f"gives tensor {shown(name)} {rank} dimensions; at most {_MAX_DIMS} are allowed")
        sizes = tuple(cursor.u64() for _ in range(rank))
        number, offset = cursor.u32(), cursor.u64()
        if number not in GGML_TYPES:
            message = (
                f"{cursor.where}: tensor {shown(name)} has type {number}, which this reader does not know"
            )
            raise refusal(ProblemCode.UNSUPPORTED_DTYPE, message, name)
        infos[name] = _Info(sizes[::-1], GGML_TYPES[number], offset)
    return infos


def _alignment(metadata: Mapping[str, GgufValue], cursor: _Cursor) -> int:
    value = metadata.get("general.alignment", 32)
    if (
        not isinstance(value, int)
        or isinstance(value, bool)
        or not 8 <= value <= 65536
        or value & (value - 1)
    ):
        raise cursor.bad(f"has alignment {shown(value)}; a power of two from 8 to 65536 is needed")
    return value


def _entry(name: str, info: _Info, data_start: int, alignment: int, cursor: _Cursor) -> TensorEntry:
    block = info.type
    row = info.shape[-1] if info.shape else 1
    total = byte_count(info.shape, 8)
    if row % block.elements or total is None or total >= 1 << 62:
        raise cursor.bad(f"gives tensor {shown(name)} the shape {info.shape}, which {block.name} cannot hold")
    nbytes = total // block.elements * block.nbytes
    if info.offset % alignment:
        raise cursor.bad(f"places tensor {shown(name)} at {info.offset}, off its alignment of {alignment}")
    if data_start + info.offset + nbytes > cursor.file_size:
        end = data_start + info.offset + nbytes
        message = f"{cursor.where} has {cursor.file_size} bytes but tensor {shown(name)} ends at byte {end}"
        raise refusal(ProblemCode.TRUNCATED_FILE, message, cursor.where)
    return TensorEntry(block.name, info.shape, data_start + info.offset, nbytes)


def _check_overlap(tensors: Mapping[str, TensorEntry], cursor: _Cursor) -> None:
    position = 0
    for name, entry in sorted(tensors.items(), key=lambda item: (item[1].offset, item[1].nbytes)):
        if entry.offset < position:
            raise cursor.bad(f"lets tensor {shown(name)} overlap another")
        position = entry.offset + entry.nbytes


class _Cursor:
    """Reads forward through the file's head; refuses whatever the file cannot hold before allocating it."""

    def __init__(self, data: bytes | mmap.mmap, file_size: int, where: str) -> None:
        self._data = data
        self._available = min(len(data), file_size)
        self._values = 0
        self.file_size = file_size
        self.where = where
        self.position = 0

    def bad(self, what: str) -> CheckpointError:
        return refusal(ProblemCode.BAD_HEADER, f"{self.where} {what}", self.where)

    def take(self, size: int) -> bytes:
        start, end = self.position, self.position + size
        self._need(size)
        self.position = end
        return self._data[start:end]

    def u32(self) -> int:
        return int(_U32.unpack(self.take(4))[0])

    def u64(self) -> int:
        return int(_U64.unpack(self.take(8))[0])

    def count(self, what: str, limit: int, bytes_each: int) -> int:
        """A count that the rest of the file can hold."""
        number = self.u64()
        if number > limit:
            raise self.bad(f"claims {number} {what}; at most {limit} are read")
        self._need(number * bytes_each)
        return number

    def string(self, limit: int = MAX_STRING_BYTES) -> str:
        size = self.u64()
        if size > limit:
            raise self.bad(f"claims a string of {size} bytes; at most {limit} are read")
        try:
            return self.take(size).decode("utf-8")
        except UnicodeDecodeError:
            raise self.bad(f"holds text that is not UTF-8 before byte {self.position}") from None

    def value(self, kind: int, depth: int) -> GgufValue:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self._array(depth)
        scalar = _SCALARS.get(kind)
        if scalar is None:
            raise self.bad(f"uses metadata type {kind}, which GGUF does not define")
        result: int | float | bool = scalar.unpack(self.take(scalar.size))[0]
        return result

    def _array(self, depth: int) -> list[GgufValue]:
        kind = self.u32()
        scalar = _SCALARS.get(kind)
        count = self.count("array elements", MAX_ARRAY, bytes_each=scalar.size if scalar else 8)
        self._values += count
        if depth >= _MAX_NESTING or self._values > MAX_METADATA_VALUES:
            raise self.bad("nests or fills its metadata arrays beyond reason")
        if scalar is None:
            return [self.value(kind, depth + 1) for _ in range(count)]
        packed = self.take(count * scalar.size)
        return [item for (item,) in scalar.iter_unpack(packed)]

    def _need(self, size: int) -> None:
        end = self.position + size
        if end <= self._available:
            return
        if end > self.file_size:
            message = f"{self.where} has {self.file_size} bytes but its header goes on past byte {end}"
            raise refusal(ProblemCode.TRUNCATED_FILE, message, self.where)
        message = f"{self.where}: {self._available} bytes of its header were sent; more are needed"
        raise refusal(ProblemCode.BAD_HEADER, message, self.where)


@contextmanager
def _mapped(path: Path, where: str) -> Iterator[mmap.mmap]:
    if path.stat().st_size == 0:
        raise refusal(ProblemCode.EMPTY_FILE, f"{where} is empty", where)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data
