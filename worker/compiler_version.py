"""Which compiler this is, so that no other one's builds are reused, nor those for another CPU level."""

from __future__ import annotations

import hashlib
from pathlib import Path

import compiler
from compiler.runtime.cpu import best_level, host_features

_SUFFIXES = frozenset({".py", ".h", ".cpp", ".egg", ".json", ".mako"})


def compiler_version() -> str:
    """A digest over the compiler package's source files, and the CPU level that it builds for here.

    Reads all of those files. Raises: UnsupportedCpu: it can build nothing that runs here.
    """
    (home,) = map(Path, compiler.__path__)
    digest = hashlib.sha256()
    for path in sorted(p for p in home.rglob("*") if p.suffix in _SUFFIXES and p.is_file()):
        digest.update(f"{path.relative_to(home).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"{digest.hexdigest()[:16]}-{best_level(host_features()).name}"
