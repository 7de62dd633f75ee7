"""The hunt on a simulated device: it finds the known optimum through noise, and random search does not."""

from __future__ import annotations

import random
from functools import cache

from compiler.search.contest import Rounds
from compiler.search.evolve import Breeder
from compiler.search.hunt import Hunt
from compiler.search.program import EFFORTS
from tests.support.noisy_device import BUCKET, Contender, NoisyDevice

SEEDS = range(100)
FULL = EFFORTS["full"]
assert FULL.rounds is not None


def hunted(seed: int) -> tuple[NoisyDevice, Hunt[Contender]]:
    """The way of a `full` search: the model's shortlist, then generations of what the model likes best."""
    device = NoisyDevice(seed)
    every = sorted(map(device.contender, device.space), key=lambda c: (c.predicted[BUCKET], c.name))
    hunt: Hunt[Contender] = Hunt([BUCKET], device, FULL.rounds)
    hunt.enter(every[: FULL.shortlist])
    breeder, rng = Breeder(device.space), random.Random(seed)
    for _ in range(FULL.generations):
        parents = [p.genome for p in hunt.parents(FULL.parents)]
        born = [device.contender(g) for g in breeder.children(parents, rng, 4 * FULL.children)]
        fresh = sorted((c for c in born if c.name not in hunt.entrants), key=lambda c: c.predicted[BUCKET])
        hunt.enter(fresh[: FULL.children])
    hunt.settle(FULL.parents)
    return device, hunt


def at_random(seed: int, trials: int) -> tuple[NoisyDevice, Hunt[Contender]]:
    """As many trials of the whole space, blindly, on the same clock with the same contest."""
    device = NoisyDevice(seed)
    hunt: Hunt[Contender] = Hunt([BUCKET], device, FULL.rounds)
    hunt.enter(list(map(device.contender, random.Random(seed).sample(device.space, trials))))
    hunt.settle(FULL.parents)
    return device, hunt


def slower_than_optimum(device: NoisyDevice, hunt: Hunt[Contender]) -> float:
    return device.truth(hunt.chosen()[BUCKET].genome) / device.optimum


@cache
def outcomes() -> list[tuple[float, float]]:
    """For each seed: how much slower than the optimum the hunt's and the random search's choices are."""
    found = []
    for seed in SEEDS:
        device, hunt = hunted(seed)
        found.append(
            (slower_than_optimum(device, hunt), slower_than_optimum(*at_random(seed, device.trials)))
        )
    return found


def test_the_hunt_comes_within_5_percent_of_the_optimum_in_95_of_100_seeds() -> None:
    assert sum(ours <= 1.05 for ours, _ in outcomes()) >= 95


def test_random_search_with_the_same_trials_loses() -> None:
    assert sum(blind <= 1.05 for _, blind in outcomes()) < 50
    assert sum(ours <= blind for ours, blind in outcomes()) >= 90


def test_a_seed_gives_the_same_choice_again() -> None:
    assert hunted(3)[1].chosen() == hunted(3)[1].chosen()


def test_measuring_costs_far_less_than_every_round_of_every_candidate() -> None:
    device, hunt = hunted(1)
    assert hunt.samples < 0.8 * device.trials * Rounds().most
