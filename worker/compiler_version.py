"""Which compiler this is, so that no other one's builds are reused, nor those for another CPU level."""

from __future__ import annotations

from compiler.fingerprint import source_digest
from compiler.runtime.cpu import best_level, host_features


def compiler_version() -> str:
    """A digest over the compiler package's source files, and the CPU level that it builds for here.

    Reads all of those files. Raises: UnsupportedCpu: it can build nothing that runs here.
    """
    return f"{source_digest()}-{best_level(host_features()).name}"
