"""Schedules that suit a GPU: one program a tile, powers of two, weights read row-major as they lie.

Best guess first, and no more than that: what is fastest is for a clock on a GPU to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from compiler.codegen.triton.lanes import lane_counts, largest_value
from compiler.ir.dim import bounds
from compiler.lower.canonical import Canonical, Role
from compiler.lower.errors import FormationError
from compiler.lower.formation import form
from compiler.lower.schedule import LoopChoice, Schedule
from compiler.lower.terms import REDUCTIONS, Kind, Term, axis_of, buffer_of, products, topological
from compiler.lower.tiles import Dot, Kernel, statements
from compiler.lower.verify import verify_kernel

_LARGEST_VALUE = 8192
"""Elements of a tensor that the registers of four warps hold beside its neighbours."""
_LARGEST_BY_FAR = 65_536
_LONG_AXIS = 4096
_WHOLE_ROWS = 64
_ROWS = (64, 32, 16, 8, 4, 1)
_POINTS = (1024, 256, 64, 16, 1)


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A kernel and the schedule that it was formed by."""

    schedule: Schedule
    kernel: Kernel


def triton_schedules(definition: Canonical) -> tuple[Schedule, ...]:
    """Schedules that may fit; formation refuses those that do not."""
    matrix = _matrix_axes(definition)
    found = _products(definition, *matrix) if matrix is not None else _others(definition)
    return tuple(dict.fromkeys(found))


def triton_kernels(definition: Canonical) -> tuple[Scheduled, ...]:
    """Kernels of a definition, best guess first: values that fit in registers, then most matrix products.

    Raises:
        FormationError: no schedule fits.
    """
    found: list[tuple[tuple[int, int], Scheduled]] = []
    refused: list[str] = []
    for schedule in triton_schedules(definition):
        try:
            kernel = form(definition, schedule)
        except FormationError as error:
            refused.append(f"{schedule.describe()}: {error}")
            continue
        verify_kernel(kernel)
        size = largest_value(kernel, lane_counts(kernel))
        if size <= _LARGEST_BY_FAR:
            excess = size if size > _LARGEST_VALUE else 0
            found.append(((excess, -_matrix_products(kernel)), Scheduled(schedule, kernel)))
    if not found:
        raise FormationError(f"no schedule fits {definition.term!r:.200}: {'; '.join(refused[:3])}")
    return tuple(scheduled for _, scheduled in sorted(found, key=lambda pair: pair[0]))


def _matrix_products(kernel: Kernel) -> int:
    return sum(isinstance(s, Dot) and s.m is not None for s in statements(kernel.body))


def _products(definition: Canonical, column: str, k: str) -> Iterator[Schedule]:
    """A product with a weight: tiles of rows and columns, the summed axis in blocks."""
    rows = [a for a in definition.axes if a != column]
    leading = [LoopChoice(a, 1) for a in rows[:-1]]
    for row_block, column_block, k_block in product((64, 32, 16), (64, 128), (32, 64, 16)):
        loops = (*leading, *(LoopChoice(a, row_block) for a in rows[-1:]), LoopChoice(column, column_block))
        yield Schedule(loops, len(loops), k, k_block, is_packed=False)


def _others(definition: Canonical) -> Iterator[Schedule]:
    """Everything else: the innermost axes in one tile, as many rows of it as fit."""
    for tile, stream in product(_tiles(definition), _streams(definition)):
        axis, block = stream
        yield Schedule(tile, len(tile), axis, block, is_packed=False)


def _tiles(definition: Canonical) -> Iterator[tuple[LoopChoice, ...]]:
    """Loops over all but the innermost axes, one of which takes several rows at a time."""
    axes = definition.axes
    whole = [a for a in axes[-1:] if _is_whole(definition, a, _LONG_AXIS)]
    if whole:
        whole += [a for a in axes[-2:-1] if _is_whole(definition, a, _WHOLE_ROWS)]
    looped = [a for a in axes if a not in whole]
    if not looped:
        yield ()
    for rows in sorted(looped, key=lambda a: -bounds(definition.extents[a])[1]):
        most = bounds(definition.extents[rows])[1]
        for block in _ROWS if whole else _POINTS:
            if block < 2 * most:
                yield tuple(LoopChoice(a, block if a == rows else 1) for a in looped)


def _is_whole(definition: Canonical, axis: str, most: int) -> bool:
    extent = definition.extents[axis]
    return isinstance(extent, int) and extent <= most


def _streams(definition: Canonical) -> Sequence[tuple[str | None, int]]:
    """The axis that runs as a sequential loop: one whose size is known only at run time, or a long one."""
    bound = dict.fromkeys(axis_of(x) for x in topological([definition.term]) if x.kind in REDUCTIONS)
    long = [a for a in bound if not _is_whole(definition, a, _LONG_AXIS)]
    symbolic = [a for a in long if not isinstance(definition.extents[a], int)]
    if not long:
        return ((None, 16),)
    blocks = (32, 64, 16) if symbolic else (1024, 64, 32)
    return tuple(((symbolic or long)[0], block) for block in blocks)


def _matrix_axes(definition: Canonical) -> tuple[str, str] | None:
    """The output axis and the summed axis of a weight that the term multiplies."""
    for term in topological([definition.term]):
        if term.kind not in (Kind.SUM, Kind.ONLINE):
            continue
        k = axis_of(term)
        for factor in products(term.args[0]):
            column = _weight_column(definition, factor, k)
            if column is not None:
                return column, k
    return None


def _weight_column(definition: Canonical, factor: Term, k: str) -> str | None:
    load = factor.args[0] if factor.kind is Kind.CAST else factor
    if load.kind is not Kind.LOAD or definition.buffers[buffer_of(load)].role is not Role.WEIGHT:
        return None
    axes = [axis_of(a) if a.kind is Kind.IDX else None for a in load.args]
    return axes[0] if len(axes) == 2 and axes[1] == k and axes[0] in definition.axes else None
