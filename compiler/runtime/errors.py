"""What may go wrong when a program is loaded or runs.

CompilerError
├── UnsupportedCpu (cpu.py)   no level of the artifact runs here
└── ProgramError
    ├── LoadFailed            kernels do not open, the team does not start, memory is not there
    ├── StepRefused           a batch outside what the program was built for
    └── ProgramClosed         used after `close`
"""

from __future__ import annotations

from compiler.errors import CompilerError


class ProgramError(CompilerError):
    code = "program_failed"


class LoadFailed(ProgramError):
    code = "program_not_loaded"


class StepRefused(ProgramError):
    """A batch that would read or write outside the program's memory. `field` is the StepBatch field."""

    code = "step_refused"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class ProgramClosed(ProgramError):
    code = "program_closed"

    def __init__(self) -> None:
        super().__init__("the program is closed")
