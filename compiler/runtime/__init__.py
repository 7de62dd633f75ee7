"""Loads artifacts and runs them. Imports numpy and the standard library, never what compiles."""

from compiler.runtime.batch import StepBatch
from compiler.runtime.cpu import UnsupportedCpu
from compiler.runtime.errors import LoadFailed, ProgramClosed, ProgramError, StepRefused
from compiler.runtime.program import LaunchTime, Program, load_program

__all__ = [
    "LaunchTime",
    "LoadFailed",
    "Program",
    "ProgramClosed",
    "ProgramError",
    "StepBatch",
    "StepRefused",
    "UnsupportedCpu",
    "load_program",
]
