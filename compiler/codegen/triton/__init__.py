"""Triton: tile programs printed for GPUs, built ahead of time without one, and interpreted for tests."""

from compiler.codegen.triton.binaries import Binary, compile_definition, compile_kernel, with_steady_form
from compiler.codegen.triton.checkpoint import compile_checkpoint_kernels
from compiler.codegen.triton.errors import (
    BuildStopped,
    GpuError,
    GpuExtraMissing,
    InterpreterFailed,
    KernelNotBuilt,
    UnknownGpuTarget,
)
from compiler.codegen.triton.interpreter import KernelRun, run_interpreted
from compiler.codegen.triton.model import GpuReport, compile_model_kernels
from compiler.codegen.triton.printer import GridAxis, kernel_grid, kernel_signature, print_triton
from compiler.codegen.triton.schedules import Scheduled, triton_kernels, triton_schedules
from compiler.codegen.triton.targets import TARGETS, GpuTarget, gpu_target

__all__ = [
    "TARGETS",
    "Binary",
    "BuildStopped",
    "GpuError",
    "GpuExtraMissing",
    "GpuReport",
    "GpuTarget",
    "GridAxis",
    "InterpreterFailed",
    "KernelNotBuilt",
    "KernelRun",
    "Scheduled",
    "UnknownGpuTarget",
    "compile_checkpoint_kernels",
    "compile_definition",
    "compile_kernel",
    "compile_model_kernels",
    "gpu_target",
    "kernel_grid",
    "kernel_signature",
    "print_triton",
    "run_interpreted",
    "triton_kernels",
    "triton_schedules",
    "with_steady_form",
]
