"""The schedules worth trying for a definition, best guess first. What they cost is for the model and the
clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from compiler.artifact.layouts import PANEL
from compiler.ir.dim import Size
from compiler.lower.canonical import Canonical, Role
from compiler.lower.schedule import LoopChoice, Schedule
from compiler.lower.terms import REDUCTIONS, Kind, Term, axis_of, buffer_of, products, topological

_TILE_ELEMENTS = 16_384
"""Most elements of a tile; larger ones leave the first-level caches."""


def schedules(definition: Canonical, *, has_tiles: bool = False) -> tuple[Schedule, ...]:
    """Schedules that may fit; formation refuses those that do not. `has_tiles`: the CPU multiplies bf16
    tiles.
    """
    stream = _stream_axis(definition)
    column = _column_axis(definition)
    found = _matrix(definition, column, stream) if column is not None else _pointwise(definition, stream)
    both = (
        replace(s, uses_tiles=tiles) for s in found for tiles in ((True, False) if has_tiles else (False,))
    )
    return tuple(dict.fromkeys(both))


def _stream_axis(definition: Canonical) -> str | None:
    """The reduced axis whose extent is known only at run time; it must be the sequential loop."""
    bound = [axis_of(x) for x in topological([definition.term]) if x.kind in REDUCTIONS]
    symbolic = [a for a in dict.fromkeys(bound) if not isinstance(definition.extents[a], int)]
    return symbolic[0] if symbolic else None


def _column_axis(definition: Canonical) -> str | None:
    """The output axis that runs over the columns of a weight which the term multiplies."""
    for term in topological([definition.term]):
        if term.kind is not Kind.SUM:
            continue
        for factor in products(term.args[0]):
            column = _weight_column(definition, factor, axis_of(term))
            if column is not None:
                return column
    return None


def _weight_column(definition: Canonical, factor: Term, k: str) -> str | None:
    load = factor.args[0] if factor.kind is Kind.CAST else factor
    if load.kind is not Kind.LOAD or definition.buffers[buffer_of(load)].role is not Role.WEIGHT:
        return None
    axes = [axis_of(a) if a.kind is Kind.IDX else None for a in load.args]
    return axes[0] if len(axes) == 2 and axes[1] == k and axes[0] in definition.axes else None


def _matrix(definition: Canonical, column: str, stream: str | None) -> Iterator[Schedule]:
    rows = [a for a in definition.axes if a != column]
    leading, row = rows[:-1], rows[-1:]
    for row_block in (24, 8, 48, 96):
        for column_block in (PANEL, 2 * PANEL):
            outer = [LoopChoice(a, 1) for a in leading]
            inner = [LoopChoice(a, row_block) for a in row]
            columns = LoopChoice(column, column_block)
            yield Schedule((*outer, columns, *inner), len(outer) + 1, stream)
            if inner:
                yield Schedule((*outer, *inner, columns), len(outer) + len(inner) + 1, stream)
    plain = (
        *(LoopChoice(a, 1) for a in leading),
        LoopChoice(column, PANEL),
        *(LoopChoice(a, 24) for a in row),
    )
    yield Schedule(plain, len(leading) + 1, stream, is_packed=False)


@dataclass(frozen=True, slots=True)
class _Split:
    loops: tuple[LoopChoice, ...]
    elements: int


def _pointwise(definition: Canonical, stream: str | None) -> Iterator[Schedule]:
    partition = "chunk" if stream is None else "cyclic"
    for split in _splits(definition):
        if split.elements <= _TILE_ELEMENTS:
            for block in (64, 32, 16) if stream is not None else (16,):
                yield Schedule(split.loops, len(split.loops), stream, block, partition=partition)
                if _reads_whole_rows(definition, split):  # a row's columns by the thread that reduced it
                    yield Schedule(split.loops, len(split.loops) - 1, stream, block, partition=partition)


def _reads_whole_rows(definition: Canonical, split: _Split) -> bool:
    """Whether no reduction varies along the innermost loop, so that one result serves all of its turns."""
    reductions = [x for x in topological([definition.term]) if x.kind in REDUCTIONS]
    return bool(reductions) and len(split.loops) > 1 and split.loops[-1].axis not in _free(reductions)


def _free(terms: list[Term]) -> frozenset[str]:
    return frozenset().union(*(x.free for x in terms))


def _splits(definition: Canonical) -> Iterator[_Split]:
    """Loops over all but the last one or two axes; a long last axis may be cut as well."""
    axes = definition.axes
    extents = definition.extents
    for whole in (2, 1, 0):
        looped = [LoopChoice(a, 1) for a in axes[: max(len(axes) - whole, 0)]]
        inside = axes[len(looped) :]
        symbolic = [a for a in inside if not isinstance(extents[a], int)]
        if symbolic:
            continue
        sizes = [_static(extents[a]) for a in inside]
        if whole == 0 and looped:
            last = looped.pop()
            block = min(_static(extents[last.axis]), 512) if isinstance(extents[last.axis], int) else 16
            yield _Split((*looped, LoopChoice(last.axis, max(block, 1))), block)
        else:
            yield _Split(tuple(looped), prod(sizes))


def _static(size: Size) -> int:
    assert isinstance(size, int)
    return size
