"""Candidates, shortlists and the choice among those that passed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from compiler.frontend import Trace
from compiler.ir import DType
from compiler.lower.errors import FormationError
from compiler.lower.verify import verify_kernel
from compiler.search.candidates import Bucket, Candidate, candidates, shortlist
from compiler.search.cost import predicted_seconds
from compiler.search.hunt import choose
from tests.support.chained import instances
from tests.support.chosen import definition_of
from tests.support.programs import PROGRAMS, graph_of

BUCKETS = (
    Bucket("one", 1, 1, {"T": 1, "S": 64, "B": 1, "M": 16, "NB": 17}),
    Bucket("many", 2, 256, {"T": 128, "S": 256, "B": 4, "M": 16, "NB": 65}),
)
NAMES = tuple(b.name for b in BUCKETS)
ALL = sorted(PROGRAMS)


@cache
def found(name: str) -> tuple[Candidate, ...]:
    definitions = [i.canonical for i in instances(graph_of(name))]
    return tuple(c for d in definitions for c in candidates(d, BUCKETS, 2, 0))


@pytest.mark.parametrize("name", ALL)
def test_every_program_has_candidates_with_names_of_their_own(name: str) -> None:
    some = found(name)
    assert len({c.name for c in some}) == len(some) > 0
    for c in some:
        verify_kernel(c.kernel)


@pytest.mark.parametrize("name", ALL)
def test_predictions_are_positive_and_grow_with_the_rows(name: str) -> None:
    assert all(0 < c.predicted["one"] <= c.predicted["many"] for c in found(name))


def test_more_threads_are_never_predicted_slower() -> None:
    dims = BUCKETS[1].representative
    for c in found("swiglu"):
        assert predicted_seconds(c.kernel, dims, 8) <= predicted_seconds(c.kernel, dims, 1)


def test_one_pass_is_predicted_faster_than_three() -> None:
    by_term: dict[str, float] = {}
    for c in found("weighted_mean"):
        by_term[c.term.key] = min(by_term.get(c.term.key, 1.0), c.predicted["many"])
    first = found("weighted_mean")[0].term.key
    written = definition_of("weighted_mean").term.key
    assert by_term[first] < by_term[written]


@pytest.mark.parametrize(("shape", "axis"), [((4, 8), None), ((8,), 0), ((3, 4), (0, 1))])
def test_a_single_number_can_be_computed(shape: tuple[int, ...], axis: int | tuple[int, ...] | None) -> None:
    trace = Trace()
    x = trace.input("x", shape, DType.F32)
    (instance,) = instances(trace.finish({"out": x.sum(axis)}))
    assert candidates(instance.canonical, BUCKETS, 2, 0)


def test_a_definition_that_nothing_fits_is_refused_with_reasons() -> None:
    trace = Trace()
    x = trace.input("x", (4, 8), DType.I32)
    (instance,) = instances(trace.finish({"out": x.sum(1)}))
    with pytest.raises(FormationError, match="no schedule fits"):
        candidates(instance.canonical, BUCKETS, 2, 0)


# Shortlists


def test_a_shortlist_holds_the_best_of_each_bucket() -> None:
    some = found("paged_attention")
    kept = shortlist(some, BUCKETS, 2)
    for b in BUCKETS:
        best = sorted((c.predicted[b.name], c.name) for c in some)[:2]
        assert {name for _, name in best} <= {c.name for c in kept}
    assert len(kept) < len(some)


def test_each_recipe_of_a_shortlist_can_serve_every_bucket_at_its_best() -> None:
    some = found("swiglu")
    kept = shortlist(some, BUCKETS, 1)
    for recipe in {c.recipe for c in kept}:
        for b in BUCKETS:
            best = min(c.predicted[b.name] for c in some if c.recipe == recipe)
            assert best == min(c.predicted[b.name] for c in kept if c.recipe == recipe)


# The choice


def with_times(recipes: list[str], times: list[tuple[float, float]]) -> tuple[Candidate, ...]:
    """Candidates of given recipes (told apart by their stream blocks) and predicted times."""
    base = next(c for c in found("softmax") if c.schedule.stream)
    made = []
    for number, (recipe, (one, many)) in enumerate(zip(recipes, times, strict=True)):
        schedule = replace(base.schedule, stream_block=ord(recipe))
        predicted = {"one": one, "many": many}
        made.append(replace(base, name=f"c{number}", schedule=schedule, predicted=predicted))
    return tuple(made)


def test_each_bucket_takes_its_fastest_candidate_of_the_recipe() -> None:
    some = with_times(["a", "a"], [(1.0, 9.0), (2.0, 3.0)])
    assert {b: c.name for b, c in choose(some, NAMES, {}).items()} == {"one": "c0", "many": "c1"}


def test_buckets_never_mix_recipes() -> None:
    some = with_times(["a", "b", "b"], [(1.0, 9.0), (1.5, 8.0), (9.0, 3.0)])
    chosen = choose(some, NAMES, {})
    assert len({c.recipe for c in chosen.values()}) == 1
    assert {b: c.name for b, c in chosen.items()} == {"one": "c1", "many": "c2"}


def test_the_clock_overrules_the_model() -> None:
    some = with_times(["a", "b"], [(1.0, 1.0), (2.0, 2.0)])
    measured = {"one": {"c0": 5.0, "c1": 1.0}, "many": {"c0": 5.0, "c1": 1.0}}
    assert {c.name for c in choose(some, NAMES, measured).values()} == {"c1"}


@pytest.mark.pitfall("C30")
def test_ties_fall_the_same_way_whatever_the_order() -> None:
    some = with_times(["a", "a", "b"], [(1.0, 1.0), (1.0, 1.0), (1.0, 1.0)])
    assert choose(some, NAMES, {}) == choose(some[::-1], NAMES, {})


def test_candidates_of_one_recipe_that_differ_in_a_bit_never_serve_together() -> None:
    some = with_times(["a", "a"], [(1.0, 9.0), (2.0, 3.0)])
    apart = {"c0": "some bits", "c1": "others"}
    assert len({c.name for c in choose(some, NAMES, {}, apart).values()}) == 1
    assert len({c.name for c in choose(some, NAMES, {}, dict.fromkeys(apart, "same")).values()}) == 2
