"""New schedules from good ones: one gene changed, or the genes of two mixed. Formation and the gate judge
them.

The genes are the fields of `Schedule` and the form of the term. Loops have changes of their own; any other
field takes values that the space of the same definition holds, so that a new field is a gene without more.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

from compiler.lower.schedule import LoopChoice, Schedule

_LARGEST_BLOCK = 512
_BLOCKS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512)
_TRIES = 64


@dataclass(frozen=True, slots=True)
class Genome:
    """Which form of the term, by number, and how it is arranged."""

    form: int
    schedule: Schedule


class Breeder:
    """Changes genomes within what the `space` of their definition holds."""

    def __init__(self, space: Sequence[Genome]) -> None:
        self._space = tuple(space)
        self._forms = tuple(dict.fromkeys(g.form for g in space))
        names = [f.name for f in fields(Schedule) if f.name not in ("loops", "parallel")]
        self._values = {n: tuple(dict.fromkeys(getattr(g.schedule, n) for g in space)) for n in names}
        self._open = tuple(n for n in names if len(self._values[n]) > 1)

    def children(self, parents: Sequence[Genome], rng: random.Random, count: int) -> Iterator[Genome]:
        """Up to `count` genomes that differ from one another and from their parents, best parents first."""
        seen = set(parents)
        for number in range(_TRIES * count):
            parent = parents[number % len(parents)]
            child = self._mixed(parent, rng.choice(parents), rng) if rng.random() < 0.3 else parent
            if child == parent or rng.random() < 0.3:
                child = self._changed(child, rng)
            if child not in seen:
                seen.add(child)
                yield child
                if len(seen) == count + len(parents):
                    return

    def anything(self, rng: random.Random) -> Genome:
        """Any genome at all: what a search without a model, a clock or parents would try."""
        some = rng.choice(self._space)
        loops = [replace(c, block=rng.choice(_BLOCKS)) for c in some.schedule.loops]
        rng.shuffle(loops)
        genes = {n: rng.choice(self._values[n]) for n in self._open}
        parallel = rng.randint(min(1, len(loops)), len(loops))
        return Genome(some.form, replace(some.schedule, loops=tuple(loops), parallel=parallel, **genes))

    def _mixed(self, one: Genome, other: Genome, rng: random.Random) -> Genome:
        """Loops of the one, and each other gene of either."""
        genes = {n: getattr(rng.choice((one, other)).schedule, n) for n in self._open}
        return Genome(rng.choice((one, other)).form, replace(one.schedule, **genes))

    def _changed(self, parent: Genome, rng: random.Random) -> Genome:
        s = parent.schedule
        changes = ["block"] * len(s.loops) + ["order", "share"] * (len(s.loops) > 1)
        changes += ["gene"] * len(self._open) + ["form"] * (len(self._forms) - 1)
        if not changes:
            return parent
        match rng.choice(changes):
            case "block":
                return replace(parent, schedule=replace(s, loops=_with_other_block(s.loops, rng)))
            case "order":
                i = rng.randrange(len(s.loops) - 1)
                swapped = (*s.loops[:i], s.loops[i + 1], s.loops[i], *s.loops[i + 2 :])
                return replace(parent, schedule=replace(s, loops=swapped))
            case "share":
                parallel = min(max(s.parallel + rng.choice((-1, 1)), 1), len(s.loops))
                return replace(parent, schedule=replace(s, parallel=parallel))
            case "gene":
                name = rng.choice(self._open)
                others = [v for v in self._values[name] if v != getattr(s, name)]
                return replace(parent, schedule=replace(s, **{name: rng.choice(others)}))
        return replace(parent, form=rng.choice([f for f in self._forms if f != parent.form]))


def _with_other_block(loops: tuple[LoopChoice, ...], rng: random.Random) -> tuple[LoopChoice, ...]:
    i = rng.randrange(len(loops))
    block = loops[i].block
    found = rng.choice((block * 2, block // 2, block + 8, block - 8, block * 3, block // 3))
    return (*loops[:i], replace(loops[i], block=min(max(found, 1), _LARGEST_BLOCK)), *loops[i + 1 :])
