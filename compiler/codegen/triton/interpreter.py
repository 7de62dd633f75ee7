"""Runs printed kernels without a GPU, in a child process that interprets them: slowly, for tests."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.codegen.triton.errors import InterpreterFailed
from compiler.codegen.triton.printer import kernel_grid, kernel_signature, print_triton
from compiler.ir.dim import bind
from compiler.lower.tiles import Kernel

Array = npt.NDArray[Any]

_CHILD = "compiler.codegen.triton.main"


@dataclass(frozen=True, slots=True)
class KernelRun:
    """One launch of `kernel`: `buffers` by name, in storage form, and a value for each of the sizes."""

    kernel: Kernel
    buffers: Mapping[str, Array]
    sizes: Mapping[str, int]


def run_interpreted(runs: Sequence[KernelRun], deadline_s: float = 300.0) -> list[Array]:
    """What each run wrote. One process runs them all.

    Raises:
        InterpreterFailed: a kernel raised, or the deadline passed.
        GpuExtraMissing: triton is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="candela-interpret-") as folder:
        job = Path(folder)
        described = [_describe(job, number, run) for number, run in enumerate(runs)]
        (job / "job.json").write_text(json.dumps({"runs": described}))
        _interpret(job, deadline_s)
        return [np.load(job / d["buffers"][i]) for d in described for i in d["written"]]


def _describe(job: Path, number: int, run: KernelRun) -> dict[str, Any]:
    """Write a run's source and arrays; returns what the child reads about it."""
    name, dims = f"run{number}", tuple(run.sizes)
    (job / f"{name}.py").write_text(print_triton(name, run.kernel, dims))
    files = []
    for i, p in enumerate(run.kernel.params):
        files.append(f"{name}_{i}.npy")
        np.save(job / files[-1], np.ascontiguousarray(run.buffers[p.buffer]))
    return {
        "module": f"{name}.py",
        "function": name,
        "types": list(kernel_signature(run.kernel, dims).values()),
        "buffers": files,
        "written": [i for i, p in enumerate(run.kernel.params) if p.is_written],
        "sizes": list(run.sizes.values()),
        "programs": prod(-(-bind(g.extent, run.sizes) // g.block) for g in kernel_grid(run.kernel)),
    }


def _interpret(job: Path, deadline_s: float) -> None:
    command = [sys.executable, "-m", _CHILD, str(job)]
    root = Path(__file__).resolve().parents[3]
    try:
        done = subprocess.run(
            command, cwd=root, capture_output=True, text=True, timeout=deadline_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise InterpreterFailed(-1, f"no end within {deadline_s:g} s") from error
    if done.returncode != 0:
        raise InterpreterFailed(done.returncode, done.stderr.strip())
