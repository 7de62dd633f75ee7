"""What may go wrong when kernels are printed and built with Triton.

GpuError
├── GpuExtraMissing      triton is not installed
├── UnknownGpuTarget     a target that is not in the table
├── KernelNotBuilt       Triton or its assembler refused every schedule of a definition
├── InterpreterFailed    the interpreter's process ended badly
└── BuildStopped         the caller asked to stop
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.errors import CompilerError

_SHOWN_CHARACTERS = 2000


class GpuError(CompilerError):
    code = "gpu_failed"


class GpuExtraMissing(GpuError):
    """GPU kernels need triton, which only the `gpu` extra installs."""

    code = "gpu_extra_missing"

    def __init__(self, wanted_for: str) -> None:
        super().__init__(
            f"{wanted_for} needs triton, which is not installed; install it with `pip install 'candela[gpu]'`"
        )
        self.wanted_for = wanted_for


class UnknownGpuTarget(GpuError):
    code = "unknown_target"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"target {name!r} is none of cpu, {', '.join(known)}")
        self.name = name


class KernelNotBuilt(GpuError):
    """No schedule of definition `key` could be built for `target`; `reasons` holds one line for each."""

    code = "gpu_kernel_failed"

    def __init__(self, key: str, target: str, reasons: Sequence[str]) -> None:
        said = "; ".join(reasons)[:_SHOWN_CHARACTERS]
        super().__init__(f"no kernel for definition {key} on {target}: {said or 'no schedule fits'}")
        self.key = key
        self.target = target
        self.reasons = tuple(reasons)


class InterpreterFailed(GpuError):
    """Triton's interpreter ended with `status`; `output` is what it said."""

    code = "gpu_interpreter_failed"

    def __init__(self, status: int, output: str) -> None:
        super().__init__(f"Triton's interpreter ended with status {status}: {output[-_SHOWN_CHARACTERS:]}")
        self.status = status
        self.output = output


class BuildStopped(GpuError):
    """The caller asked to stop."""

    code = "cancelled"
