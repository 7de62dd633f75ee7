"""Stages: who runs beside whom, and how long a value lives."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.frontend import Trace
from compiler.ir import DType, Graph
from compiler.lower import terms as t
from compiler.lower.definitions import Definition, Place, define
from compiler.lower.stages import lifetimes, stages

FEW = settings(max_examples=60, deadline=None)
NODE = Trace().input("unused", (1,), DType.F32).node


@dataclass(frozen=True, slots=True)
class Step:
    """A definition by what it reads (numbers of earlier ones, or of two inputs below 0) and writes over."""

    reads: tuple[int, ...]
    over: int | None = None


def definitions(steps: list[Step]) -> list[Definition]:
    made = []
    for number, step in enumerate(steps):
        term = t.num(0.0, DType.F32)
        for read in step.reads:
            name = f"d{read}" if read >= 0 else f"in:{-read}"
            term = t.add(term, t.load(name, [], DType.F32))
        alias = None if step.over is None else f"in:{step.over}"
        place = Place(f"d{number}", ())
        made.append(Definition(f"d{number}", (), {}, term, place, (), DType.F32, NODE, alias))
    return made


@st.composite
def programs(draw: st.DrawFn) -> list[Definition]:
    """Up to ten definitions in order; each reads some before it, and may write over an input."""
    steps = []
    for number in range(draw(st.integers(1, 10))):
        reads = draw(st.lists(st.integers(-2, number - 1), max_size=3))
        steps.append(Step(tuple(reads), draw(st.sampled_from([None, None, None, 1, 2]))))
    return definitions(steps)


def stage_of(plan: tuple[tuple[Definition, ...], ...]) -> dict[str, int]:
    return {d.name: number for number, group in enumerate(plan) for d in group}


@FEW
@given(programs())
def test_every_definition_runs_once_and_after_all_it_reads(program: list[Definition]) -> None:
    at = stage_of(stages(program))
    assert sorted(at) == sorted(d.name for d in program)
    assert all(at[b] < at[d.name] for d in program for b in d.reads() if b in at)


@pytest.mark.pitfall("C25")
@FEW
@given(programs())
def test_nobody_is_overtaken_by_who_writes_over_what_it_reads(program: list[Definition]) -> None:
    at = stage_of(stages(program))
    pairs = [
        (earlier, later)
        for i, later in enumerate(program)
        if later.aliases is not None
        for earlier in program[:i]
        if later.aliases in (*earlier.reads(), earlier.aliases)
    ]
    assert all(at[earlier.name] < at[later.name] for earlier, later in pairs)


@FEW
@given(programs())
def test_a_definition_waits_for_nothing_else(program: list[Definition]) -> None:
    plan = stages(program)
    at = stage_of(plan)
    for i, d in enumerate(program):
        needs = [at[b] for b in d.reads() if b in at]
        needs += [at[e.name] for e in program[:i] if d.aliases and d.aliases in (*e.reads(), e.aliases)]
        assert at[d.name] == max(needs, default=-1) + 1


@FEW
@given(programs())
def test_a_value_lives_from_its_stage_to_its_last_reader(program: list[Definition]) -> None:
    plan = stages(program)
    at, live = stage_of(plan), lifetimes(plan)
    assert live == {
        d.name: (at[d.name], max([at[d.name], *(at[e.name] for e in program if d.name in e.reads())]))
        for d in program
    }


def test_independent_outputs_run_in_one_stage() -> None:
    trace = Trace()
    x = trace.input("x", (4,), DType.F32)
    graph: Graph = trace.finish({"a": x + 1.0, "b": x * 2.0})
    assert [len(group) for group in stages(define(graph))] == [2]
