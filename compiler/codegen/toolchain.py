"""Finds a C++ compiler and builds shared objects with it, through a cache that is addressed by content.

Owns flags, the cache and the child process; what the source says is the printers' business.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from compiler.codegen.toolchain_errors import CompileFailed, CompilerNotFound, ToolchainError
from compiler.codegen.toolchain_process import run_compiler
from compiler.runtime.cpu import Level

MICRO_DIR = Path(__file__).parent / "micro"
"""The headers that generated source includes by `#include "kernels.h"`."""

FLAGS = (
    "-std=c++17",
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fPIC",
    "-fno-exceptions",
    "-fno-rtti",
    "-pthread",
    "-iquote",
    str(MICRO_DIR),
)
"""Order, lanes and fusing of floating point are explicit in the source; nothing here may change them."""

_LINK_FLAGS = ("-shared", "-pthread", "-Wl,--build-id=none", "-Wl,-Bsymbolic")
_PRELUDE = '#include "kernels.h"\n'
_DEFAULT_TIMEOUT_S = 300.0


class CompilerKind(StrEnum):
    GCC = "gcc"
    CLANG = "clang"
    ZIG = "zig"


@dataclass(frozen=True, slots=True)
class CxxCompiler:
    """A compiler that works: how to call it, and its version line, which keys the cache."""

    command: tuple[str, ...]
    kind: CompilerKind
    version: str


def find_compiler(preferred: str | None = None, *, timeout_s: float = 120.0) -> CxxCompiler:
    """The preferred compiler (a command, as in `CXX`), else g++, clang++, or the `ziglang` package.

    The first call of zig takes about a minute.

    Raises:
        CompilerNotFound: none answers `--version`; the message lists what was tried.
    """
    tried: list[str] = []
    for command in _candidates(preferred):
        name = " ".join(command)
        try:
            text = run_compiler((*command, "--version"), timeout_s=timeout_s)
        except ToolchainError as error:
            tried.append(f"{name}: {error}")
            continue
        version = (text.splitlines() or [""])[0].strip()
        return CxxCompiler(command, _kind(command, version), version)
    raise CompilerNotFound(tried)


class Toolchain:
    """Builds for any level with one compiler. Safe to use from several processes on one cache."""

    def __init__(
        self, compiler: CxxCompiler, cache_dir: Path, *, timeout_s: float = _DEFAULT_TIMEOUT_S
    ) -> None:
        self.compiler = compiler
        self._cache = cache_dir
        self._timeout_s = timeout_s
        self._headers = _digest_of_headers()

    def shared_object(
        self,
        sources: str | Sequence[str],
        level: Level,
        *,
        with_team: bool = True,
        defines: Sequence[str] = (),
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Path:
        """A shared object of these translation units, cached or built; with the thread team by default.

        The path lies in the cache: copy it to keep it. Each unit is cached by itself.

        Raises:
            CompileFailed: the compiler refused the source; `output` holds what it said.
            CompileTimeout: it took longer than this toolchain's timeout.
            CompileCancelled: `should_stop` said so.
        """
        units = [sources] if isinstance(sources, str) else list(sources)
        if with_team:
            units.append((MICRO_DIR / "team.cpp").read_text())
        flags = (*FLAGS, *self._own_flags(), *self._level_flags(level), *(f"-D{name}" for name in defines))
        keys = [self._key("object", flags, unit) for unit in units]
        target = self._cache / "so" / f"{self._key('so', _LINK_FLAGS, *keys)}.so"
        if target.exists():
            return target
        objects = [self._object(k, u, flags, should_stop) for k, u in zip(keys, units, strict=True)]
        self._produce(target, (*_LINK_FLAGS, *map(str, objects)), should_stop)
        return target

    def _object(self, key: str, unit: str, flags: tuple[str, ...], should_stop: Callable[[], bool]) -> Path:
        target = self._cache / "object" / f"{key}.o"
        if target.exists():
            return target
        source = self._cache / "object" / f"{key}.cpp"
        _write(source, unit)
        self._produce(target, (*flags, *self._prelude(flags, should_stop), "-c", str(source)), should_stop)
        return target

    def _prelude(self, flags: tuple[str, ...], should_stop: Callable[[], bool]) -> tuple[str, ...]:
        """Flags that include the precompiled headers: parsing the intrinsics costs more than most kernels."""
        if self.compiler.kind is CompilerKind.ZIG:
            return ()
        directory = self._cache / "prelude" / self._key("prelude", flags)
        header = directory / "prelude.h"
        suffix = "gch" if self.compiler.kind is CompilerKind.GCC else "pch"
        precompiled = directory / f"prelude.h.{suffix}"
        if not precompiled.exists():
            _write(header, _PRELUDE)
            self._produce(precompiled, (*flags, "-x", "c++-header", str(header)), should_stop)
        if self.compiler.kind is CompilerKind.GCC:
            return ("-include", str(header))
        return ("-include-pch", str(precompiled))

    def _produce(self, target: Path, arguments: tuple[str, ...], should_stop: Callable[[], bool]) -> None:
        """Run the compiler to a temporary name, then rename: a reader never sees half a file."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".") as scratch:
            partial = Path(scratch) / target.name
            command = (*self.compiler.command, *arguments, "-o", str(partial))
            run_compiler(command, timeout_s=self._timeout_s, should_stop=should_stop)
            if not partial.exists():
                raise CompileFailed(command, 0, "the compiler wrote no output")
            os.replace(partial, target)

    def _own_flags(self) -> tuple[str, ...]:
        match self.compiler.kind:
            case CompilerKind.GCC:
                # Jump threading turns the clamps of c_exp2f into branches, and such a loop stays scalar.
                return (
                    "-fno-semantic-interposition",
                    "-fno-tree-dominator-opts",
                    "-Wno-uninitialized",
                    "-Wno-psabi",
                )
            case CompilerKind.CLANG:
                return ("-Wno-psabi",)
            case CompilerKind.ZIG:
                return ("-fno-sanitize=all", "-Wno-psabi")

    def _level_flags(self, level: Level) -> tuple[str, ...]:
        """Zig writes the names of CPUs with underscores."""
        if self.compiler.kind is not CompilerKind.ZIG:
            return level.flags
        return tuple(f.replace("-march=x86-64-", "-march=x86_64_") for f in level.flags)

    def _key(self, kind: str, flags: Sequence[str], *contents: str) -> str:
        """What decides the bytes of an output. MICRO_DIR's place is left out: only what it holds counts."""
        compiler = self.compiler
        told = [f for f in flags if f != str(MICRO_DIR)]
        parts = [kind, *compiler.command, compiler.version, self._headers, "\0".join(told), *contents]
        digest = hashlib.sha256()
        for part in parts:
            data = part.encode()
            digest.update(len(data).to_bytes(8, "little") + data)
        return digest.hexdigest()


def _candidates(preferred: str | None) -> list[tuple[str, ...]]:
    commands: list[tuple[str, ...]] = [tuple(preferred.split())] if preferred else []
    commands += [(found,) for name in ("g++", "clang++") if (found := shutil.which(name))]
    if importlib.util.find_spec("ziglang") is not None:
        commands.append((sys.executable, "-m", "ziglang", "c++"))
    return commands


def _kind(command: tuple[str, ...], version: str) -> CompilerKind:
    if any("zig" in word for word in command):
        return CompilerKind.ZIG
    return CompilerKind.CLANG if "clang" in version.lower() else CompilerKind.GCC


def _digest_of_headers() -> str:
    digest = hashlib.sha256()
    for path in sorted(MICRO_DIR.glob("*.h")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _write(path: Path, text: str) -> None:
    """Write once, whole: several processes may want the same file."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".", delete=False) as file:
        file.write(text)
    os.replace(file.name, path)
