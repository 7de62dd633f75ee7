"""Random schedules for a definition, far beyond those that the search proposes."""

from __future__ import annotations

from hypothesis import strategies as st

from compiler.lower.canonical import Canonical
from compiler.lower.schedule import LoopChoice, Schedule
from compiler.lower.terms import REDUCTIONS, axis_of, topological

_BLOCKS = (1, 2, 3, 5, 8, 16, 24, 64, 128)
_STREAM_BLOCKS = (1, 3, 8, 16, 24, 32, 64)


def reduced_axes(definition: Canonical) -> list[str]:
    bound = [axis_of(x) for x in topological([definition.term]) if x.kind in REDUCTIONS]
    return list(dict.fromkeys(bound))


@st.composite
def schedules_of(draw: st.DrawFn, definition: Canonical) -> Schedule:
    """Loops over any output axes, the symbolic ones always, any order and size; any reduced axis streams."""
    symbolic = [a for a in definition.axes if not isinstance(definition.extents[a], int)]
    static = [a for a in definition.axes if a not in symbolic]
    looped = draw(st.permutations([*symbolic, *(a for a in static if draw(st.booleans()))]))
    loops = tuple(LoopChoice(a, draw(st.sampled_from(_BLOCKS))) for a in looped)
    reduced = reduced_axes(definition)
    must = [a for a in reduced if not isinstance(definition.extents[a], int)]
    stream = draw(st.sampled_from([*must] if must else [None, *reduced]))
    return Schedule(
        loops,
        parallel=draw(st.integers(0, len(loops))),
        stream=stream,
        stream_block=draw(st.sampled_from(_STREAM_BLOCKS)),
        is_packed=draw(st.booleans()),
        partition=draw(st.sampled_from(["chunk", "cyclic"])),
    )
