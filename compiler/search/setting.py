"""What a search runs in, and how much a budget buys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from compiler.measure.journal import Journal
from compiler.search.cache import SearchCache
from compiler.search.candidates import Bucket
from compiler.search.contest import Rounds
from compiler.search.kept import Kept

Build = Callable[[str], Path]
"""Compiles a translation unit to a shared object."""
Report = Callable[[float, str], None]
"""Takes a fraction of the search and a sentence."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a budget buys: candidates built a bucket, rounds of a contest (None: the model decides),
    seeded forms, changes of the cuts that are measured, and generations of children of the best parents.

    After `seconds` the best so far is used. A result of equal or greater `strength` need not be found again.
    """

    shortlist: int
    rounds: Rounds | None
    seeds: int
    flips: int
    generations: int = 0
    children: int = 8
    parents: int = 3
    seconds: float | None = None
    strength: int = 0
    settles: bool = False
    """Whether the best of each definition meet once more, for longer."""
    is_limit_usual: bool = False
    """Whether ending at the limit of `seconds` gives a result like any other of this effort."""


EFFORTS: Mapping[str, Effort] = {
    "none": Effort(shortlist=1, rounds=None, seeds=0, flips=0),
    "quick": Effort(
        3,
        Rounds(most=7),
        seeds=2,
        flips=2,
        generations=1,
        children=3,
        strength=1,
        seconds=60.0,
        is_limit_usual=True,
    ),
    "full": Effort(8, Rounds(most=15), seeds=8, flips=16, generations=5, strength=2, settles=True),
}
_FEW_SECONDS = 60.0


def effort_for(budget: str | float) -> Effort | None:
    """The effort of a named budget, or of so many seconds; None where it is neither."""
    if isinstance(budget, str) and budget in EFFORTS:
        return EFFORTS[budget]
    try:
        seconds = float(budget)
    except ValueError:
        return None
    if not seconds >= 0.0:
        return None
    base = EFFORTS["quick" if seconds < _FEW_SECONDS else "full"]
    return replace(base, seconds=seconds, is_limit_usual=False)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a search runs in.

    `environment` is what decides results beside a definition: compiler, level, CPU and toolchain. `cache`
    holds what earlier searches found, and `kept` takes what the gate refuses.
    """

    dims: tuple[str, ...]
    buckets: tuple[Bucket, ...]
    threads: int
    effort: Effort
    seed: int
    work_dir: Path
    build: Build
    should_stop: Callable[[], bool]
    is_busy: Callable[[], bool]
    has_tiles: bool = False
    """The level multiplies bf16 on matrix tiles: what meets a bf16 weight is rounded to bf16."""
    environment: str = ""
    journal: Journal = field(default_factory=Journal)
    cache: SearchCache | None = None
    kept: Kept | None = None
