"""Definitions become binaries: print, build, check the limits, take the first schedule that keeps to them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from compiler.codegen.triton.edge import BuildOptions, BuildRefused, Built, build
from compiler.codegen.triton.errors import KernelNotBuilt
from compiler.codegen.triton.printer import GridAxis, kernel_grid, kernel_signature, print_triton
from compiler.codegen.triton.resources import Resources, cubin_resources, hsaco_resources
from compiler.codegen.triton.schedules import Scheduled, triton_kernels
from compiler.codegen.triton.targets import GpuTarget
from compiler.ir.dtype import HALVES
from compiler.lower.canonical import Canonical
from compiler.lower.terms import Kind, Term, topological
from compiler.search.candidates import forms

_ATTEMPTS = 4
"""Schedules that are built before the least bad one is taken."""


@dataclass(frozen=True, slots=True)
class Binary:
    """A built kernel. `signature` is name -> Triton type; `hidden_arguments` null pointers follow it.

    `precision` is that of products of f32 values; those of 16-bit values are exact.
    """

    symbol: str
    code: bytes
    source: str
    schedule: str
    precision: str
    signature: dict[str, str]
    grid: tuple[GridAxis, ...]
    options: BuildOptions
    threads: int
    shared_bytes: int
    registers: int
    spilled_bytes: int
    hidden_arguments: int

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.code).hexdigest()


def compile_definition(
    definition: Canonical, dims: Sequence[str], target: GpuTarget, work_dir: Path
) -> Binary:
    """The kernel of a definition, by its steady form, for `target`, which need not be here.

    Of the first schedules that build: one that spills no registers, or else the one that spills least.

    Raises:
        GpuExtraMissing: triton is not installed.
        KernelNotBuilt: no schedule could be built within the target's limits.
    """
    found: list[Binary] = []
    refused: list[str] = []
    for scheduled in islice(triton_kernels(with_steady_form(definition)), _ATTEMPTS):
        try:
            made = compile_kernel(f"k_{definition.key}", scheduled, dims, target, work_dir)
        except BuildRefused as error:
            refused.append(f"{scheduled.schedule.describe()}: {error}")
            continue
        found.append(made)
        if not made.spilled_bytes:
            break
    if not found:
        raise KernelNotBuilt(definition.key, target.name, refused)
    return min(found, key=lambda b: b.spilled_bytes)


def with_steady_form(definition: Canonical) -> Canonical:
    """The definition by the cheapest form of its term whose running corrections cannot overflow.

    No gate runs here. A correction by an exponential below a running maximum is at most 1; its reciprocal has
    no bound, so such a form would need one.
    """
    found = forms(definition, 0)
    return definition.with_term(next((f for f in found if _is_steady(f)), definition.term))


def _is_steady(form: Term) -> bool:
    kept = [t.args[1] for t in topological([form]) if t.kind is Kind.ONLINE]
    return all(t.kind is not Kind.RECIP for t in topological(kept))


def compile_kernel(
    name: str, scheduled: Scheduled, dims: Sequence[str], target: GpuTarget, work_dir: Path
) -> Binary:
    """Print and build one kernel.

    Raises:
        GpuExtraMissing: triton is not installed.
        BuildRefused: it was not accepted, or needs more shared memory than `target` has.
    """
    kernel, options = scheduled.kernel, BuildOptions(num_stages=target.num_stages)
    precision = "tf32" if any(p.dtype in HALVES for p in kernel.params) else "ieee"
    source, signature = print_triton(name, kernel, dims, precision), kernel_signature(kernel, dims)
    module = work_dir / f"{name}.py"
    module.write_text(source)
    built = build(module, name, signature, target, options, work_dir / "triton")
    if built.shared_bytes > target.shared_bytes:
        raise BuildRefused(f"{built.shared_bytes} bytes of shared memory, {target.shared_bytes} are there")
    if built.scratch_bytes:
        raise BuildRefused(f"{built.scratch_bytes} bytes of global scratch, which nobody would provide")
    used = _resources(built, target)
    return Binary(
        symbol=built.symbol,
        code=built.code,
        source=source,
        schedule=scheduled.schedule.describe(),
        precision=precision,
        signature=signature,
        grid=kernel_grid(kernel),
        options=options,
        threads=built.warps * target.warp_size,
        shared_bytes=built.shared_bytes,
        registers=used.registers,
        spilled_bytes=used.spilled_bytes,
        hidden_arguments=used.arguments - len(signature),
    )


def _resources(built: Built, target: GpuTarget) -> Resources:
    if target.backend == "cuda":
        return cubin_resources(built.code, built.assembly)
    return hsaco_resources(built.assembly)
