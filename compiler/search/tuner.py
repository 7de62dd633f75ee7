"""Tunes definitions once, however many arrangements ask for them, and adds up what an arrangement takes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from compiler.ir.dim import symbols
from compiler.lower.canonical import Canonical
from compiler.measure.bench import Bench
from compiler.measure.builds import Builds
from compiler.measure.ground import BenchGround, Plan
from compiler.search.arrange import Arrangement
from compiler.search.cache import entry_of, identity_of, restore
from compiler.search.candidates import Bucket, Candidate, Nursery, shortlist
from compiler.search.evolve import Breeder
from compiler.search.hunt import Hunt
from compiler.search.setting import Report, Setting
from compiler.search.tune import Tuned, tuned_by

_BARRIER_S = 2e-6
_NEXT_BEST = 4
"""How many candidates are built at a time where the model's favourite fails the gate."""


@dataclass
class _Quarry:
    """One definition on its way: its space, its hunt, and the share of the program's time it is thought to
    take.
    """

    definition: Canonical
    nursery: Nursery
    proposed: tuple[Candidate, ...]
    hunt: Hunt[Candidate]
    ground: BenchGround
    weight: float = 0.0
    first: Candidate | None = None
    is_evolved: bool = False


class Tuner:
    """Candidates and results by canonical key; what was tuned once is not tuned again."""

    def __init__(self, setting: Setting, bench: Bench) -> None:
        self._setting, self._bench = setting, bench
        self._quarries: dict[str, _Quarry] = {}
        s = setting
        self._builds = Builds(s.build, s.dims, s.environment, s.journal, s.should_stop)
        self.tuned: dict[str, Tuned] = {}
        self.restored: set[str] = set()
        self.first_s = 0.0

    def propose(self, definition: Canonical) -> tuple[Candidate, ...]:
        """Every candidate of a definition's space, formed once.

        Raises:
            FormationError: no schedule fits it.
        """
        return self._quarry(definition).proposed

    def _quarry(self, definition: Canonical) -> _Quarry:
        if definition.key not in self._quarries:
            s = self._setting
            nursery = Nursery(definition, s.buckets, s.threads, s.effort.seeds)
            proposed = nursery.fill(has_tiles=s.has_tiles)
            plan = Plan(
                gate_sizes=gate_sizes(definition, s.buckets),
                dims=s.dims,
                seed=s.seed,
                meaning=f"{s.environment}|{s.seed}|{identity_of(definition, s.buckets)}",
                journal=s.journal,
                is_busy=s.is_busy,
                is_over=self.is_over,
                should_stop=s.should_stop,
                kept=s.kept,
            )
            key = definition.key
            ground = BenchGround(definition, s.buckets, self._bench, plan, self._builds.object_of)
            hunt: Hunt[Candidate] = Hunt([b.name for b in s.buckets], ground, s.effort.rounds)
            self._quarries[key] = _Quarry(definition, nursery, proposed, hunt, ground)
        return self._quarries[definition.key]

    # Phases

    def is_over(self) -> bool:
        """Whether the budget's seconds are spent."""
        seconds = self._setting.effort.seconds
        return seconds is not None and self._setting.journal.spent >= seconds

    def tune(self, arrangement: Arrangement, report: Report) -> None:
        """Find a candidate that passes for each definition that was not tuned before, then better ones.

        Raises:
            Stopped: the caller asked for it.
            NoCandidate, FormationError: a definition that nothing computes.
        """
        self._restore(arrangement)
        fresh = [d for key, d in arrangement.distinct().items() if key not in self.tuned]
        if not fresh:
            return
        counts = arrangement.counts()
        quarries = [self._quarry(d) for d in fresh]
        for q in quarries:
            q.weight = counts[q.definition.key] * sum(
                min(c.predicted[b.name] for c in q.proposed) for b in self._setting.buckets
            )
        quarries.sort(key=lambda q: (-q.weight, q.definition.key))
        self._first(quarries, lambda f, m: report(0.5 * f, m))
        if self._setting.effort.shortlist > 0:
            s = self._setting
            found = {q.definition.key: shortlist(q.proposed, s.buckets, s.effort.shortlist) for q in quarries}
            self._enter(found, lambda f, m: report(0.5 + 0.5 * f, m))

    def evolve(self, arrangement: Arrangement, report: Report) -> None:
        """Generations of children for every definition that was timed, the dearest first; then a last
        contest.
        """
        effort = self._setting.effort
        keys = [k for k in arrangement.distinct() if k not in self.restored and self.tuned[k].is_timed()]
        found = [self._quarries[k] for k in keys if not self._quarries[k].is_evolved]
        found.sort(key=lambda q: (-q.weight, q.definition.key))
        for number in range(effort.generations):
            if self.is_over():
                return
            born = {q.definition.key: self._children(q, number) for q in found}
            done = number / effort.generations
            self._enter(born, partial(_within, report, done, 1 / effort.generations))
        for q in found:
            q.is_evolved = True
            if effort.settles and not self.is_over():
                q.hunt.settle(effort.parents)
                q.ground.leave()
            self._note(q)

    def _first(self, quarries: Sequence[_Quarry], report: Report) -> None:
        """One candidate for each definition, right at every size: with them the program is valid."""
        ranked = {q.definition.key: iter(self._by_total(q.proposed)) for q in quarries}
        waiting, count = list(quarries), 1
        while waiting:
            found = {q.definition.key: _some(ranked[q.definition.key], count) for q in waiting}
            for q in waiting:
                if not found[q.definition.key]:
                    tuned_by(q.definition, q.hunt)
            self._enter(found, report, is_first=True)
            waiting, count = [q for q in waiting if not q.hunt.passed], _NEXT_BEST
        for q in quarries:
            q.first = q.hunt.passed[0]
        if not self.first_s:
            self.first_s = self._setting.journal.spent
            report(1.0, f"first valid program after {self.first_s:.1f} s")

    def _by_total(self, found: Sequence[Candidate]) -> list[Candidate]:
        buckets = [b.name for b in self._setting.buckets]
        best = {b: min(c.predicted[b] for c in found) for b in buckets}
        return sorted(found, key=lambda c: (sum(c.predicted[b] / best[b] for b in buckets), c.name))

    def _children(self, q: _Quarry, generation: int) -> tuple[Candidate, ...]:
        """What the model likes best of the children that can be formed."""
        genomes = {c.name: g for g, c in q.nursery.formed.items()}
        effort = self._setting.effort
        parents = [genomes[c.name] for c in q.hunt.parents(effort.parents)]
        rng = random.Random(f"{self._setting.seed} {q.definition.key} {generation}")
        born = Breeder(list(genomes.values())).children(parents, rng, 4 * effort.children)
        formed = [c for c in map(q.nursery.form, born) if c is not None and c.name not in q.hunt.entrants]
        return tuple(self._by_total(formed)[: effort.children]) if formed else ()

    def _enter(
        self, found: Mapping[str, Sequence[Candidate]], report: Report, *, is_first: bool = False
    ) -> None:
        """Build, gate and time candidates by definition, in this order, until the budget is spent."""
        hunts = {k: self._quarries[k].hunt for k in found}
        fresh = {k: [c for c in some if c.name not in hunts[k].entrants] for k, some in found.items()}
        todo = {k: some for k, some in fresh.items() if some}
        built = self._builds.each(todo, (lambda: False) if is_first else self.is_over)
        if is_first:
            for key in todo:
                self._quarries[key].ground.prepare(todo[key])  # while compilers run
        else:  # the clock wants a machine on which no compiler runs
            built = iter(list(built))
        for number, key in enumerate(built, start=1):
            q = self._quarries[key]
            if self.is_over() and not is_first:
                break
            q.hunt.enter(todo[key], is_timed=not is_first)
            q.ground.leave()
            if q.hunt.passed:
                self._note(q)
            refused = sum(not v.is_accepted for v in q.hunt.verdicts.values())
            report(number / len(todo), f"{key}: {len(q.hunt.passed)} passed, {refused} refused")

    # For whoever compares searches

    def dearest(self) -> list[str]:
        """Keys of the definitions that were tuned, those with most of the predicted time first."""
        found = sorted(self._quarries.values(), key=lambda q: (-q.weight, q.definition.key))
        return [q.definition.key for q in found if q.hunt.passed]

    def hunt(self, key: str) -> Hunt[Candidate]:
        return self._quarries[key].hunt

    def at_random(self, key: str, count: int) -> Hunt[Candidate]:
        """A hunt with so many trials of the space, blindly."""
        q = self._quarries[key]
        breeder, rng = Breeder(list(q.nursery.formed)), random.Random(f"{self._setting.seed} {key}")
        found: dict[str, Candidate] = {}
        for _ in range(100 * count):
            c = q.nursery.form(breeder.anything(rng))
            if c is not None and len(found) < count:
                found[c.name] = c
        return self.raced(key, list(found.values()))

    def raced(self, key: str, some: Sequence[Candidate]) -> Hunt[Candidate]:
        """A hunt that knows only these."""
        q = self._quarries[key]
        hunt: Hunt[Candidate] = Hunt(
            [b.name for b in self._setting.buckets], q.ground, self._setting.effort.rounds
        )
        for _ in self._builds.each({key: some}):
            hunt.enter(some)
        return hunt

    def _note(self, q: _Quarry) -> None:
        self.tuned[q.definition.key] = tuned_by(q.definition, q.hunt)

    # What other searches found

    def _restore(self, arrangement: Arrangement) -> None:
        s = self._setting
        if s.cache is None or not s.effort.strength:
            return
        for key, definition in arrangement.distinct().items():
            if key in self.tuned or (key in self._quarries and self._quarries[key].hunt.entrants):
                continue
            identity = identity_of(definition, s.buckets)
            entry = s.journal.step(
                "cache",
                s.environment,
                str(s.effort.strength),
                identity,
                make=partial(s.cache.read, "definition", identity, s.effort.strength),
            )
            found = restore(entry, definition, s.buckets, s.threads, s.dims) if entry is not None else None
            if found is not None:
                self.tuned[key] = found
                self.restored.add(key)

    def remember(self) -> None:
        """Keep what was timed for other searches."""
        s = self._setting
        if s.cache is None:
            return
        for key, found in self.tuned.items():
            if key in self.restored or not found.is_timed():
                continue
            definition = found.definition
            genomes = {c.name: g for g, c in self._quarries[key].nursery.formed.items()}
            body = entry_of(found, genomes, s.effort.seeds, s.dims)
            s.cache.write(
                "definition", identity_of(definition, s.buckets), {**body, "strength": s.effort.strength}
            )

    # What an arrangement takes, in seconds by bucket

    def predicted(self, arrangement: Arrangement) -> dict[str, float]:
        """By the cost model alone, each definition at its best."""

        def best(key: str, bucket: str) -> float:
            return min(c.predicted[bucket] for c in self._quarries[key].proposed)

        for definition in arrangement.distinct().values():
            self.propose(definition)
        return self._total(arrangement, best)

    def measured(self, arrangement: Arrangement) -> dict[str, float]:
        """As timed; every definition has been tuned."""
        return self._total(arrangement, lambda key, bucket: self.tuned[key].seconds(bucket))

    def is_timed(self, arrangement: Arrangement) -> bool:
        """Whether the clock has spoken on every definition."""
        return all(key in self.tuned and self.tuned[key].is_timed() for key in arrangement.distinct())

    def _total(self, arrangement: Arrangement, seconds: Callable[[str, str], float]) -> dict[str, float]:
        barriers, counts = _BARRIER_S * len(arrangement.plan), arrangement.counts()
        names = [b.name for b in self._setting.buckets]
        return {b: barriers + sum(n * seconds(k, b) for k, n in counts.items()) for b in names}

    def standing(self) -> str:
        """Trials so far, and the best so far as a share of the first program's time."""
        trials = sum(len(q.hunt.entrants) for q in self._quarries.values())
        now = first = 0.0
        for q in self._quarries.values():
            for bucket, known in q.hunt.measured.items():
                if q.first is not None and q.first.name in known:
                    scale = q.weight / known[q.first.name]
                    first += q.weight
                    now += scale * self.tuned[q.definition.key].seconds(bucket)
        told = f"{trials} trials" + (f", best {now / first:.2f} of the first" if first else "")
        seconds = self._setting.effort.seconds
        return told + (
            f", {min(self._setting.journal.spent / seconds, 1.0):.0%} of the time" if seconds else ""
        )


def _within(report: Report, low: float, share: float, fraction: float, message: str) -> None:
    report(low + share * fraction, message)


def _some(found: Iterable[Candidate], count: int) -> list[Candidate]:
    return [c for _, c in zip(range(count), found, strict=False)]


def relative(times: Mapping[str, float], base: Mapping[str, float]) -> float:
    """Mean over the buckets of time over base time: each bucket counts alike."""
    return sum(times[b] / base[b] for b in base) / len(base)


def gate_sizes(definition: Canonical, buckets: Sequence[Bucket] = ()) -> tuple[Mapping[str, int], ...]:
    """Sizes that candidates are gated at: an odd one inside a tile, the smallest, one past a tile's edge, and
    the edges of buckets.

    A loop over blocks of a cache takes several tiles in the first and the third, at every tile size tried.
    """
    known = {s.name: s for b in definition.buffers.values() for n in b.shape for s in symbols(n)}
    wanted = [
        {"T": 5, "R": 3, "B": 2, "M": 9, "NB": 19},
        {"T": 1, "R": 1, "B": 1, "M": 1, "NB": 3},
        {"T": 51, "R": 9, "B": 3, "M": 9, "NB": 29},
    ]
    edges = sorted({n for b in buckets for n in (b.low, b.high) if n <= _LARGEST_EDGE})
    wanted += [{"T": n, "R": min(n, 9), "B": min(n, 3), "M": 5, "NB": 17} for n in edges]

    def clamped(sizes: Mapping[str, int]) -> dict[str, int]:
        return {n: min(max(sizes.get(n, 7), s.low), s.high) for n, s in known.items()}

    return tuple({tuple(c.items()): c for c in map(clamped, wanted)}.values())


_LARGEST_EDGE = 64
