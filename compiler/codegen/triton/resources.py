"""What a built kernel takes of the hardware, read from the binary itself or from its assembly."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_ELF_HEADER = struct.Struct("<40xQ10xHHH")  # section header table: offset, entry size, count; names' index
_SECTION = struct.Struct("<IIQQQQ")  # name, type, flags, address, offset, size
_ATTRIBUTE = struct.Struct("<BBH")  # format, attribute, size or value
_SIZED, _REGISTERS, _FRAME = 4, 0x2F, 0x11


@dataclass(frozen=True, slots=True)
class Resources:
    """Registers a thread, bytes a thread that did not fit in them, and the launch's argument count."""

    registers: int
    spilled_bytes: int
    arguments: int


def cubin_resources(cubin: bytes, ptx: str) -> Resources:
    """Reads the `.nv.info` section of a cubin, and the parameters of the PTX's one entry."""
    found = dict(_attributes(_section(cubin, b".nv.info")))
    entry = ptx[ptx.index(".entry") :]
    parameters = entry[: entry.index(")")].count(".param ")
    return Resources(found[_REGISTERS], found.get(_FRAME, 0), parameters)


def hsaco_resources(assembly: str) -> Resources:
    """Reads the metadata at the end of AMD's assembly."""

    def number(name: str) -> int:
        found = re.search(rf"^\s*\.{name}:\s*(\d+)", assembly, re.MULTILINE)
        assert found is not None, f"no {name} in the assembly"
        return int(found[1])

    return Resources(
        number("vgpr_count"), number("private_segment_fixed_size"), assembly.count(".value_kind:")
    )


def _section(elf: bytes, name: bytes) -> bytes:
    table, entry, count, names_at = _ELF_HEADER.unpack_from(elf)
    sections = [_SECTION.unpack_from(elf, table + i * entry) for i in range(count)]
    names = sections[names_at][4]
    for start, _, _, _, offset, size in sections:
        if elf[names + start :].startswith(name + b"\0"):
            return elf[offset : offset + size]
    raise AssertionError(f"no section {name!r} in the binary")


def _attributes(info: bytes) -> Iterator[tuple[int, int]]:
    """Attribute -> its last word, of those that say something about a function."""
    at = 0
    while at < len(info):
        form, attribute, size = _ATTRIBUTE.unpack_from(info, at)
        at += _ATTRIBUTE.size
        if form == _SIZED:
            yield attribute, struct.unpack_from("<I", info, at + size - 4)[0]
            at += size
