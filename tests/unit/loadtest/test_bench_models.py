"""The table of other models beside inductor, as pure functions of rows and a clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from loadtest.bench.models import Row, geometric_mean, line, median_s, render


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


def test_a_figure_is_the_median_of_five_samples() -> None:
    probe, gap = 1.0, 0.0
    samples = (5.0, 1.0, 4.0, 2.0, 3.0)
    spent = [value for sample in samples for value in (gap, sample)]
    assert median_s(lambda: None, clock_of(probe, *spent)) == 3.0


def test_a_short_call_is_repeated_until_the_clock_sees_it() -> None:
    calls = itertools.count()
    clock = clock_of(0.01, *(value for _ in range(5) for value in (0.0, 0.05)))
    assert median_s(lambda: next(calls), clock) == pytest.approx(0.01)
    assert next(calls) == 2 + 5 * 5


def test_a_row_that_does_not_exist_is_named() -> None:
    import typer

    from loadtest.bench.models import main

    app = typer.Typer()
    app.command()(main)
    done = CliRunner().invoke(app, ["--only", "vgg"])
    assert done.exit_code == 2
    assert "vgg is none of gpt2" in done.output
