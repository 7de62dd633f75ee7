"""The memory plan: no two live values share a byte, and the checker sees it when they do."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.lower.errors import LoweringError
from compiler.lower.memory import ALIGNMENT, Arena, Interval, check_arena, peak_live_bytes, plan_arena

FEW = settings(max_examples=60, deadline=None)


@st.composite
def intervals(draw: st.DrawFn, smallest: int = 0) -> tuple[Interval, ...]:
    made = []
    for number in range(draw(st.integers(0, 12))):
        first = draw(st.integers(0, 8))
        last = first + draw(st.integers(0, 5))
        made.append(Interval(f"v{number}", draw(st.integers(smallest, 700)), first, last))
    return tuple(made)


def together(a: Interval, b: Interval) -> bool:
    return a.first <= b.last and b.first <= a.last


def share_a_byte(arena: Arena, a: Interval, b: Interval) -> bool:
    start, other = arena.offsets[a.name], arena.offsets[b.name]
    return max(start, other) < min(start + a.size_bytes, other + b.size_bytes)


@FEW
@given(intervals())
def test_values_that_live_together_share_no_byte(values: tuple[Interval, ...]) -> None:
    arena = plan_arena(values)
    pairs = itertools.combinations(values, 2)
    assert not any(together(a, b) and share_a_byte(arena, a, b) for a, b in pairs)


@FEW
@given(intervals())
def test_the_arena_holds_every_value_and_at_least_the_peak(values: tuple[Interval, ...]) -> None:
    arena = plan_arena(values)
    ends = [arena.offsets[v.name] + v.size_bytes for v in values]
    assert arena.size_bytes >= max([*ends, arena.peak_live_bytes])
    assert all(at % ALIGNMENT == 0 for at in arena.offsets.values())


@FEW
@given(intervals())
def test_the_peak_is_the_fullest_stage(values: tuple[Interval, ...]) -> None:
    rounded = [replace(v, size_bytes=-(-v.size_bytes // ALIGNMENT) * ALIGNMENT) for v in values]
    fullest = max(
        (sum(v.size_bytes for v in rounded if v.first <= s <= v.last) for s in range(14)), default=0
    )
    assert peak_live_bytes(values) == fullest


@FEW
@given(intervals())
def test_the_plan_does_not_depend_on_the_order_of_the_values(values: tuple[Interval, ...]) -> None:
    assert plan_arena(values) == plan_arena(values[::-1])


@FEW
@given(intervals(smallest=1), st.randoms(use_true_random=False))
def test_the_checker_accepts_what_is_sound_and_nothing_else(
    values: tuple[Interval, ...], rng: Random
) -> None:
    offsets = {v.name: rng.randrange(0, 40) * ALIGNMENT for v in values}
    size = max((offsets[v.name] + v.size_bytes for v in values), default=0)
    arena = Arena(offsets, size, 0)
    is_sound = not any(
        together(a, b) and share_a_byte(arena, a, b) for a, b in itertools.combinations(values, 2)
    )
    assert is_accepted(arena, values) == is_sound


def is_accepted(arena: Arena, values: tuple[Interval, ...]) -> bool:
    try:
        check_arena(arena, values)
    except LoweringError:
        return False
    return True


def test_values_of_different_stages_take_one_place() -> None:
    arena = plan_arena((Interval("a", 640, 0, 1), Interval("b", 640, 2, 3)))
    assert (arena.offsets["a"], arena.offsets["b"], arena.size_bytes) == (0, 0, 640)


@pytest.mark.parametrize("offset", [32, 192], ids=["misaligned", "out of bounds"])
def test_a_value_out_of_bounds_or_misaligned_is_refused(offset: int) -> None:
    value = Interval("a", 128, 0, 0)
    assert is_accepted(Arena({"a": 128}, 256, 0), (value,))
    with pytest.raises(LoweringError, match="misplaced"):
        check_arena(Arena({"a": offset}, 256, 0), (value,))


def test_a_value_inside_a_longer_one_is_seen() -> None:
    values = (Interval("long", 640, 0, 0), Interval("short", 64, 0, 0), Interval("after", 64, 0, 0))
    with pytest.raises(LoweringError, match="overlap"):
        check_arena(Arena({"long": 0, "short": 64, "after": 320}, 640, 0), values)
