"""What this compiler and machine are, as digests: results of others are never taken for ours."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from compiler.runtime.cpu import Level, host_features

_SUFFIXES = frozenset({".py", ".h", ".cpp", ".egg", ".json", ".mako"})


@cache
def source_digest() -> str:
    """A digest over the compiler package's source files. Reads all of them, once a process."""
    home = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(p for p in home.rglob("*") if p.suffix in _SUFFIXES and p.is_file()):
        digest.update(f"{path.relative_to(home).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def environment(level: Level, toolchain: str, threads: int, *, has_tiles: bool) -> str:
    """What decides the outcome of a search beside what is searched: compiler, CPU, toolchain and threads."""
    parts = (source_digest(), level.name, str(int(host_features())), toolchain, str(threads), str(has_tiles))
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]
