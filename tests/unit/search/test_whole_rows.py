"""Rows whose columns are written after they were reduced: one reduction a row, not one a block of columns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compiler.lower.tiles import Kernel, Loop
from compiler.search.candidates import Bucket, Candidate, candidates
from tests.support.chained import instances
from tests.support.spellings import ALL

BUCKETS = (Bucket("many", 2, 256, {"T": 128, "S": 512}),)


def best(name: str) -> Candidate:
    (instance,) = instances(ALL[name]())
    return min(candidates(instance.canonical, BUCKETS, 2, 0), key=lambda c: c.predicted["many"])


def paths(body: tuple[object, ...], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Axes of the loops around and at each loop."""
    for item in body:
        if isinstance(item, Loop):
            yield (*above, item.axis)
            yield from paths(item.body, (*above, item.axis))


def loops_of(kernel: Kernel) -> set[tuple[str, ...]]:
    return set(paths(kernel.body))


@pytest.mark.parametrize("name", ["probabilities", "log_probabilities", "centred_columns"])
def test_a_row_is_reduced_once_and_then_written(name: str) -> None:
    chosen = best(name)
    assert chosen.kernel.parallel == 1
    assert loops_of(chosen.kernel) == {("o0",), ("o0", "k0"), ("o0", "o1")}


@pytest.mark.parametrize("name", ["attention", "row_variance", "weighted_mean"])
def test_what_varies_along_every_loop_is_shared_by_all_of_them(name: str) -> None:
    (instance,) = instances(ALL[name]())
    found = candidates(instance.canonical, BUCKETS, 2, 0)
    assert {c.kernel.parallel for c in found} == {len(c.schedule.loops) for c in found}
