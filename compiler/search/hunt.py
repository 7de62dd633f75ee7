"""The hunt for one definition's best candidates: who enters is gated, and raced against who stands. Pure.

Buckets share one numeric recipe: it is chosen for the best weighted total, and each bucket then takes the
fastest candidate of that recipe. Candidates of one recipe that differ in a bit are told apart all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Generic, Protocol, TypeVar

from compiler.search.contest import Rounds, race
from compiler.search.gate import Verdict


class Entrant(Protocol):
    """A candidate, as far as the hunt cares: `recipe` fixes a row's bits, `predicted` is by bucket."""

    @property
    def name(self) -> str: ...
    @property
    def recipe(self) -> object: ...
    @property
    def predicted(self) -> Mapping[str, float]: ...


E = TypeVar("E", bound=Entrant)
C = TypeVar("C", bound=Entrant, contravariant=True)


class Ground(Protocol[C]):
    """Where entrants are tried."""

    def gate(self, entrants: Sequence[C]) -> Sequence[Verdict]: ...
    def may_measure(self, bucket: str, contest: int) -> bool: ...
    def take(self, bucket: str, contest: int, number: int, entrants: Sequence[C]) -> Mapping[str, float]: ...
    def is_over(self) -> bool: ...


class Hunt(Generic[E]):
    """Everyone tried so far, by name, and what each takes in each bucket. `rounds` None: never timed."""

    def __init__(self, buckets: Sequence[str], ground: Ground[E], rounds: Rounds | None) -> None:
        self._buckets, self._ground, self._rounds = tuple(buckets), ground, rounds
        self._contests = 0
        self.entrants: dict[str, E] = {}
        self.verdicts: dict[str, Verdict] = {}
        self.measured: dict[str, dict[str, float]] = {}
        self._doubtful: dict[str, dict[str, float]] = {}
        self.samples = 0

    @property
    def passed(self) -> tuple[E, ...]:
        return tuple(e for n, e in self.entrants.items() if self.verdicts[n].is_accepted)

    def enter(self, newcomers: Sequence[E], *, is_timed: bool = True) -> None:
        """Gate those that were not here before, and race those that pass against the incumbents."""
        fresh = [e for e in {e.name: e for e in newcomers}.values() if e.name not in self.entrants]
        for entrant, verdict in zip(fresh, self._ground.gate(fresh), strict=True):
            self.entrants[entrant.name], self.verdicts[entrant.name] = entrant, verdict
        if is_timed and self._rounds is not None and self.passed:
            self._contests += 1
            for bucket in self._buckets:
                self._contend(bucket)

    def settle(self, count: int) -> None:
        """Race the best `count` of each bucket once more, for longer: small gains need more samples."""
        if self._rounds is None or not self.measured:
            return
        rounds = replace(self._rounds, first=2 * self._rounds.first, most=2 * self._rounds.most)
        self._contests += 1
        for bucket, known in self.measured.items():
            ranked = sorted(known, key=lambda n: (known[n], n))
            self._race(bucket, ranked[:count], rounds)

    def _contend(self, bucket: str) -> None:
        """Race whoever was not timed in this bucket against its incumbent."""
        assert self._rounds is not None
        known = self.measured.get(bucket, {})
        self._race(bucket, [e.name for e in self.passed if e.name not in known], self._rounds)

    def _race(self, bucket: str, names: Sequence[str], rounds: Rounds) -> None:
        known = self.measured.get(bucket, {})
        incumbent = self.chosen()[bucket].name
        others = [n for n in names if n != incumbent]
        if (known and not others) or self._ground.is_over():
            return
        if not self._ground.may_measure(bucket, self._contests):
            return

        def take(number: int, order: Sequence[str]) -> Mapping[str, float]:
            return self._ground.take(bucket, self._contests, number, [self.entrants[n] for n in order])

        standing = race(incumbent, others, take, rounds, self._ground.is_over)
        self.samples += standing.samples
        own = standing.seconds[incumbent]
        scale = known[incumbent] / own if incumbent in known and 0 < own < inf else 1.0
        self.measured[bucket] = {**known, **{n: s * scale for n, s in standing.seconds.items()}}
        held = self._doubtful.get(bucket, {})
        doubtful = {n: t for n, t in held.items() if n not in standing.seconds}
        self._doubtful[bucket] = doubtful | dict.fromkeys(standing.doubtful, own * scale * (1 + 1e-09))

    def seconds(self, entrant: E, bucket: str) -> float:
        """As timed; else as predicted, on the scale of those that were timed."""
        known = self.measured.get(bucket, {})
        if entrant.name in known or not known:
            return known.get(entrant.name, entrant.predicted[bucket])
        scales = sorted(s / self.entrants[n].predicted[bucket] for n, s in known.items() if s < inf)
        return entrant.predicted[bucket] * (scales[len(scales) // 2] if scales else 1.0)

    def chosen(self) -> Mapping[str, E]:
        """The best of each bucket within the best recipe; who is only perhaps faster does not replace."""
        seconds = {
            b: {e.name: self._doubtful.get(b, {}).get(e.name, self.seconds(e, b)) for e in self.passed}
            for b in self._buckets
        }
        return choose(self.passed, self._buckets, seconds, {n: v.bits for n, v in self.verdicts.items()})

    def parents(self, count: int) -> tuple[E, ...]:
        """The chosen, then the fastest of each bucket by rank."""
        ranked = [sorted(self.passed, key=lambda e: (self.seconds(e, b), e.name)) for b in self._buckets]
        found = {e.name: e for e in self.chosen().values()}
        for rank in range(count):
            found |= {r[rank].name: r[rank] for r in ranked if rank < len(r)}
        return tuple(list(found.values())[: max(count, len(self._buckets))])


def choose(
    passed: Sequence[E],
    buckets: Sequence[str],
    seconds: Mapping[str, Mapping[str, float]],
    bits: Mapping[str, str] | None = None,
) -> Mapping[str, E]:
    """The fastest candidate of each bucket, within the one recipe whose total over the buckets is least.

    `seconds` are by bucket and name, as predicted where there are none; `bits` tell apart what a recipe ought
    to make equal.
    """
    told = bits or {}

    def time(e: E, bucket: str) -> float:
        return seconds.get(bucket, {}).get(e.name, e.predicted[bucket])

    kinds: dict[tuple[str, str], list[E]] = {}
    for e in passed:
        kinds.setdefault((repr(e.recipe), told.get(e.name, "")), []).append(e)
    best = {
        (kind, b): min(some, key=lambda e: (time(e, b), e.name))
        for kind, some in kinds.items()
        for b in buckets
    }
    fastest = {b: max(min(time(e, b) for e in passed), 1e-12) for b in buckets}

    def total(kind: tuple[str, str]) -> float:
        return sum(time(best[kind, b], b) / fastest[b] for b in buckets)

    winner = min(sorted(kinds), key=total)
    return {b: best[winner, b] for b in buckets}
