"""Which compiler this is: a digest of its sources, so that another never reuses this one's builds."""

from __future__ import annotations

import hashlib
from pathlib import Path

import compiler

_SUFFIXES = frozenset({".py", ".h", ".cpp", ".egg", ".json", ".mako"})


def compiler_version() -> str:
    """Hex digest over names and bytes of the compiler package's source files. Reads all of them."""
    (home,) = map(Path, compiler.__path__)
    digest = hashlib.sha256()
    for path in sorted(p for p in home.rglob("*") if p.suffix in _SUFFIXES and p.is_file()):
        digest.update(f"{path.relative_to(home).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]
