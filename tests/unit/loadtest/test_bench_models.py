"""The table of other models beside inductor, as pure functions of rows and a clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import typer
from typer.testing import CliRunner

from loadtest.bench.models import Row, geometric_mean, line, main, medians_s, render


def clock_of(*durations: float) -> Callable[[], float]:
    """A clock that moves by each duration between a call and the next one, and then by none."""
    times = itertools.accumulate((0.0, *durations))
    last = sum(durations)
    return lambda: next(times, last)


def test_a_row_that_is_slower_is_marked() -> None:
    assert line(Row("slow", 1e-3, 2e-3, 1e-6)) == "| slow | 1.000 | 2.000 | 0.50 below 1.0 | 1.0e-06 |"
    assert line(Row("fast", 2e-3, 1e-3, 0.0)) == "| fast | 2.000 | 1.000 | 2.00 | 0.0e+00 |"


def test_the_mean_is_geometric() -> None:
    assert geometric_mean([0.5, 2.0, 8.0]) == pytest.approx(2.0)
    assert geometric_mean([]) == 1.0


def test_the_table_ends_with_the_mean() -> None:
    table = render([Row("a", 1.0, 2.0, 0.0), Row("b", 8.0, 1.0, 0.0)])
    assert table.splitlines()[-1] == "geometric mean of 2 rows: 2.00"
    assert [text.split(" | ")[0] for text in table.splitlines()[2:4]] == ["| a", "| b"]


def test_figures_are_medians_of_five_samples_taken_in_turns() -> None:
    taken = [(5.0, 50.0), (1.0, 10.0), (4.0, 40.0), (2.0, 20.0), (3.0, 30.0)]
    in_turns = [1.0, 1.0, *itertools.chain(*taken)]
    clock = clock_of(*(value for sample in in_turns for value in (sample, 0.0)))
    assert medians_s((lambda: None, lambda: None), clock) == [3.0, 30.0]


def test_a_short_call_is_repeated_until_the_clock_sees_it() -> None:
    calls = itertools.count()
    clock = clock_of(*(value for sample in (0.01, *[0.05] * 5) for value in (sample, 0.0)))
    assert medians_s((lambda: next(calls),), clock) == [pytest.approx(0.01)]
    assert next(calls) == 2 + 5 * (1 + 5)


def test_a_row_that_does_not_exist_is_named() -> None:
    app = typer.Typer()
    app.command()(main)
    done = CliRunner().invoke(app, ["--only", "vgg"])
    assert done.exit_code == 2
    assert "vgg is none of gpt2" in done.output
