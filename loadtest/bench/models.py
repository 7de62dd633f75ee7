"""Models that the compiler was not written for, at batch 1, beside torch.compile with inductor.

    python -m loadtest.bench.models [--budget quick] [--dtype f32] [--threads 2] [--only mlp --only bert]

GPT-2-, Qwen-3- and Gemma-2-shaped models with random weights (one step of 1 and of 64 tokens), an MLP, a
ResNet block and a BERT block; the same dtype and threads on both sides, each figure the median of five.
Prints a table, marks rows below 1.0 and ends with the geometric mean. Leave the machine otherwise idle.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from loadtest.bench.contests import CONTESTS, Contest, Setup

REPEATS = 5
_LEAST_SAMPLE_S = 0.05
_MOST_ERROR = {"f32": 1e-3, "bf16": 5e-2}
"""Of the largest value: beyond it the two sides do not compute the same, and no time counts."""


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds of one call on each side; `error` is the largest difference relative to the largest value."""

    name: str
    peer_s: float
    ours_s: float
    error: float

    @property
    def ratio(self) -> float:
        """How many times as fast ours is."""
        return self.peer_s / self.ours_s


def main(
    budget: Annotated[str, typer.Option(help="none, quick, full, or seconds.")] = "quick",
    dtype: Annotated[str, typer.Option(help="f32 or bf16, on both sides.")] = "f32",
    threads: Annotated[int, typer.Option(help="On both sides.")] = 2,
    only: Annotated[list[str] | None, typer.Option(help="A row's first word; all rows without it.")] = None,
) -> None:
    """Measure and print; exit 1 when a row's answers differ."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="candela-models-") as folder:
        setup = Setup(Path(folder), budget, dtype, threads)
        for make in _chosen(only):
            for contest in make(setup):
                rows.append(measured(contest))
                print(line(rows[-1]), flush=True)
    print()
    print(render(rows))
    wrong = [row.name for row in rows if not row.error <= _MOST_ERROR[dtype]]
    for name in wrong:
        print(f"the answers differ: {name}")
    raise typer.Exit(1 if wrong else 0)


def measured(contest: Contest) -> Row:
    """Run both sides of a contest, in turns."""
    error = contest.error()
    peer_s, ours_s = medians_s((contest.peer, contest.ours))
    contest.close()
    return Row(contest.name, peer_s, ours_s, error)


def medians_s(
    calls: Sequence[Callable[[], object]], clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Seconds of one call of each: medians of `REPEATS` samples long enough for the clock.

    Samples are taken in turns, so that a machine that slows down slows all of them; before each one call goes
    untimed, in which threads of the one before come to rest.
    """
    counts = [_count(call, clock) for call in calls]
    samples: list[list[float]] = [[] for _ in calls]
    for _ in range(REPEATS):
        for call, count, found in zip(calls, counts, samples, strict=True):
            found.append(_sample(call, count, clock))
    return [statistics.median(found) for found in samples]


def _count(call: Callable[[], object], clock: Callable[[], float]) -> int:
    return max(1, math.ceil(_LEAST_SAMPLE_S / max(_sample(call, 1, clock), 1e-9)))


def _sample(call: Callable[[], object], count: int, clock: Callable[[], float]) -> float:
    call()
    start = clock()
    for _ in range(count):
        call()
    return (clock() - start) / count


def geometric_mean(ratios: Sequence[float]) -> float:
    """Of positive numbers; 1 of none."""
    return math.exp(sum(map(math.log, ratios)) / max(len(ratios), 1))


def line(row: Row) -> str:
    """A row of the table; one below 1.0 is marked."""
    mark = " below 1.0" if row.ratio < 1 else ""
    times = f"{row.peer_s * 1e3:.3f} | {row.ours_s * 1e3:.3f}"
    return f"| {row.name} | {times} | {row.ratio:.2f}{mark} | {row.error:.1e} |"


def render(rows: Iterable[Row]) -> str:
    """The table with its geometric mean."""
    found = list(rows)
    head = ["| model | inductor, ms | Candela, ms | ratio | error |", "| --- | --- | --- | --- | --- |"]
    mean = f"geometric mean of {len(found)} rows: {geometric_mean([row.ratio for row in found]):.2f}"
    return "\n".join([*head, *map(line, found), "", mean])


def _chosen(only: Sequence[str] | None) -> list[Callable[[Setup], Iterator[Contest]]]:
    unknown = sorted(set(only or ()) - set(CONTESTS))
    if unknown:
        raise typer.BadParameter(f"{unknown[0]} is none of {', '.join(CONTESTS)}")
    return [make for name, make in CONTESTS.items() if not only or name in only]


if __name__ == "__main__":
    typer.run(main)
