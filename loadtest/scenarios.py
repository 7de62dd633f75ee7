"""What a load test may look like: stages of users over time, or arrivals at a fixed rate. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stage:
    """`users` of each kind from the stage before's end until `until_s`; no users at all is silence."""

    until_s: float
    chat: int = 0
    cutting: int = 0
    rate_per_s: float = 0.0

    @property
    def users(self) -> int:
        return self.chat + self.cutting + (1 if self.rate_per_s else 0)


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    about: str
    stages: tuple[Stage, ...]

    def at(self, elapsed_s: float) -> Stage | None:
        """The stage at that time; None after the last."""
        return next((stage for stage in self.stages if elapsed_s < stage.until_s), None)

    @property
    def length_s(self) -> float:
        return self.stages[-1].until_s


def scenarios(length_s: float) -> Mapping[str, Scenario]:
    """All of them, each over about `length_s` seconds."""
    part = length_s / 4
    found = (
        Scenario("steady", "a closed loop: four people who chat", (Stage(length_s, chat=4),)),
        Scenario(
            "open", "an open loop: two requests a second, answered or not", (Stage(length_s, rate_per_s=2),)
        ),
        Scenario(
            "ramp",
            "twice as many people in each quarter",
            tuple(Stage(part * (n + 1), chat=2**n) for n in range(4)),
        ),
        Scenario("spike", "from nobody to sixteen at once", (Stage(part), Stage(length_s, chat=16))),
        Scenario(
            "burst",
            "people, then silence for longer than the idle time, then a burst at zero replicas",
            (Stage(part, chat=2), Stage(3 * part), Stage(length_s, chat=8)),
        ),
        Scenario(
            "mixed",
            "people, one in five of whom leaves before the end",
            (Stage(length_s, chat=4, cutting=1),),
        ),
    )
    return {scenario.name: scenario for scenario in found}


def arrivals(rate_per_s: float, seed: int) -> Iterator[float]:
    """Gaps in seconds between arrivals that know nothing of each other (exponential), for ever."""
    rng = random.Random(seed)
    while True:
        yield rng.expovariate(rate_per_s)
