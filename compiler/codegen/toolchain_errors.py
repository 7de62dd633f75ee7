"""What may go wrong with a C++ compiler.

ToolchainError
├── CompilerNotFound     no compiler on this machine
├── CompileFailed        it refused the source
├── CompileTimeout       it took too long and was killed
└── CompileCancelled     the caller asked to stop
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.errors import CompilerError

_SHOWN_LINES = 20
_SHOWN_CHARACTERS = 2000


class ToolchainError(CompilerError):
    code = "toolchain_failed"


class CompilerNotFound(ToolchainError):
    """No C++ compiler works here. `tried` says what each candidate answered."""

    code = "compiler_not_found"

    def __init__(self, tried: Sequence[str]) -> None:
        said = "".join(f"; {t}" for t in tried)
        super().__init__(
            "no C++ compiler was found: install g++ or clang++, set CXX, or `pip install ziglang`" + said
        )
        self.tried = tuple(tried)


class CompileFailed(ToolchainError):
    """The compiler ended with `status`. `output` is all it said; the message holds its beginning."""

    code = "compile_failed"

    def __init__(self, command: Sequence[str], status: int, output: str) -> None:
        super().__init__(f"{command[0]} ended with status {status}: {_trimmed(output)}")
        self.command = tuple(command)
        self.status = status
        self.output = output


class CompileTimeout(ToolchainError):
    code = "compile_timeout"

    def __init__(self, command: Sequence[str], timeout_s: float) -> None:
        super().__init__(f"{command[0]} did not end within {timeout_s:g} s and was killed")
        self.command = tuple(command)
        self.timeout_s = timeout_s


class CompileCancelled(ToolchainError):
    code = "compile_cancelled"

    def __init__(self, command: Sequence[str]) -> None:
        super().__init__(f"{command[0]} was stopped on request")
        self.command = tuple(command)


def _trimmed(output: str) -> str:
    """The first errors, or else the beginning: what follows them is mostly their echo."""
    lines = output.strip().splitlines()
    first = next((i for i, line in enumerate(lines) if "error" in line.lower()), 0)
    kept = "\n".join(lines[first : first + _SHOWN_LINES])
    return kept if len(kept) <= _SHOWN_CHARACTERS else kept[:_SHOWN_CHARACTERS] + " ..."
