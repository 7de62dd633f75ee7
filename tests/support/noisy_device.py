"""A device that exists only in numbers: schedules have true times, and a clock with jitter, spikes and drift.

The optimum is known. The cost model that proposes is wrong by a random factor for each schedule.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

from compiler.lower.schedule import LoopChoice, Schedule
from compiler.search.evolve import Genome
from compiler.search.gate import Verdict

ROWS, COLUMNS, STREAMS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96), (8, 16, 32, 64, 128, 256), (16, 32, 64)
FORMS = 3
BUCKET = "all"


@dataclass(frozen=True)
class Contender:
    """A genome with what the model says of it."""

    name: str
    genome: Genome
    predicted: Mapping[str, float]
    recipe: str = "one"


@dataclass
class NoisyDevice:
    """Implements the hunt's ground. `trials` counts candidates that were tried."""

    seed: int
    jitter: float = 0.08
    spikes: float = 0.1
    drift: float = 0.3
    wrong_by: float = 0.3
    trials: int = 0
    _clock: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._noise = random.Random(f"noise {self.seed}")
        shape = random.Random(f"shape {self.seed}")
        self._best = (shape.uniform(2, 5.5), shape.uniform(4, 7), shape.uniform(4, 6))
        self._curve = tuple(shape.uniform(0.15, 0.5) for _ in self._best)
        self._cross = shape.uniform(-0.15, 0.15)
        self._form = [shape.uniform(1.0, 1.6) for _ in range(FORMS)]
        self._order = shape.choice((0.8, 1.25))
        self._packed = shape.choice((0.7, 1.2))

    @cached_property
    def space(self) -> tuple[Genome, ...]:
        """Every genome of the grid that a person would write down."""
        found = []
        grid = product(range(FORMS), ROWS, COLUMNS, STREAMS, (False, True), (False, True))
        for form, rows, columns, stream, is_swapped, is_packed in grid:
            loops = (LoopChoice("m", rows), LoopChoice("n", columns))
            chosen = loops[::-1] if is_swapped else loops
            found.append(Genome(form, Schedule(chosen, 1, "k", stream, is_packed)))
        return tuple(found)

    @cached_property
    def optimum(self) -> float:
        return min(map(self.truth, self.space))

    def truth(self, genome: Genome) -> float:
        s = genome.schedule
        blocks = {c.axis: math.log2(c.block) for c in s.loops}
        off = [
            x - b
            for x, b in zip((blocks["m"], blocks["n"], math.log2(s.stream_block)), self._best, strict=True)
        ]
        slow = sum(c * o * o for c, o in zip(self._curve, off, strict=True)) + self._cross * off[0] * off[1]
        order = self._order if s.loops[0].axis == "n" else 1.0
        return 1e-3 * (1.0 + slow) * self._form[genome.form] * order * (self._packed if s.is_packed else 1.0)

    def contender(self, genome: Genome) -> Contender:
        name = repr(genome)
        wrong = math.exp(random.Random(f"{self.seed} {name}").gauss(0.0, self.wrong_by))
        return Contender(name, genome, {BUCKET: self.truth(genome) * wrong})

    # What the hunt asks

    def gate(self, entrants: Sequence[Contender]) -> Sequence[Verdict]:
        self.trials += len(entrants)
        return [Verdict(True, 0.0) for _ in entrants]

    def may_measure(self, bucket: str, contest: int) -> bool:
        return True

    def is_over(self) -> bool:
        return False

    def take(
        self, bucket: str, contest: int, number: int, entrants: Sequence[Contender]
    ) -> Mapping[str, float]:
        return {e.name: self._sample(self.truth(e.genome)) for e in entrants}

    def _sample(self, true: float) -> float:
        self._clock += 1
        slow = 1.0 + self.drift * (0.5 + 0.5 * math.sin(self._clock / 97.0))
        spike = self._noise.uniform(1.5, 4.0) if self._noise.random() < self.spikes else 1.0
        return true * slow * spike * math.exp(abs(self._noise.gauss(0.0, self.jitter)))
