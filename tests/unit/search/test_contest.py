"""Contests: who is clearly slower is out, and only who is clearly faster replaces the incumbent."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path

from compiler.measure.lock import measuring
from compiler.search.contest import Rounds, race, ratio

ROUNDS = Rounds(first=4, most=15)


def noisy(times: Mapping[str, float], seed: int = 0, jitter: float = 0.05) -> Callable[..., dict[str, float]]:
    """Takes with jitter, and a spike now and then."""
    rng = random.Random(seed)

    def take(number: int, names: Sequence[str]) -> dict[str, float]:
        spikes = {n: rng.choice((3.0, *([1.0] * 11))) for n in names}
        return {n: times[n] * spikes[n] * (1 + abs(rng.gauss(0, jitter))) for n in names}

    return take


def test_the_clearly_faster_replaces_the_incumbent() -> None:
    standing = race("old", ["new"], noisy({"old": 2.0, "new": 1.0}), ROUNDS)
    assert standing.seconds["new"] < standing.seconds["old"]
    assert "new" not in standing.doubtful
    assert standing.rounds < ROUNDS.most


def test_equals_never_replace_the_incumbent() -> None:
    wins = 0
    for seed in range(50):
        standing = race("old", ["new"], noisy({"old": 1.0, "new": 1.0}, seed), ROUNDS)
        wins += standing.seconds["new"] < standing.seconds["old"] and "new" not in standing.doubtful
    assert wins <= 2


def test_the_clearly_slower_is_sampled_no_more() -> None:
    asked: dict[str, int] = {}
    take = noisy({"old": 1.0, "near": 1.01, "far": 3.0})

    def counted(number: int, names: Sequence[str]) -> dict[str, float]:
        for n in names:
            asked[n] = asked.get(n, 0) + 1
        return take(number, names)

    race("old", ["near", "far"], counted, ROUNDS)
    assert asked["far"] == ROUNDS.first
    assert asked["near"] > asked["far"]


def test_drift_meets_all_alike() -> None:
    """Each round is slower than the one before, by more than the candidates differ."""
    times = {"old": 1.0, "new": 0.9}
    standing = race("old", ["new"], lambda i, names: {n: times[n] * 1.2**i for n in names}, ROUNDS)
    assert abs(standing.seconds["new"] / standing.seconds["old"] - 0.9) < 1e-6
    assert "new" not in standing.doubtful


def test_the_order_changes_from_round_to_round() -> None:
    orders: list[tuple[str, ...]] = []

    def take(number: int, names: Sequence[str]) -> dict[str, float]:
        orders.append(tuple(names))
        return {n: 1.0 + 0.3 * ((number + hash_of(n)) % 2) for n in names}

    def hash_of(name: str) -> int:
        return ord(name)

    race("a", ["b", "c"], take, Rounds(first=6, most=6))
    assert len(set(orders)) >= 4
    assert {o[0] for o in orders} == {"a", "b", "c"}


def test_one_that_crashes_never_wins() -> None:
    standing = race("old", ["dead"], lambda i, names: {n: inf if n == "dead" else 1.0 for n in names}, ROUNDS)
    assert standing.seconds["dead"] == inf
    assert ratio([inf], [1.0]).low == inf


def test_a_crashed_incumbent_loses() -> None:
    standing = race("dead", ["new"], lambda i, names: {n: inf if n == "dead" else 1.0 for n in names}, ROUNDS)
    assert standing.seconds["new"] < standing.seconds["dead"]


def test_a_contest_that_is_over_ends_after_its_round() -> None:
    standing = race("a", ["b"], noisy({"a": 1.0, "b": 1.0}), ROUNDS, is_over=lambda: True)
    assert standing.rounds == 1
    assert set(standing.seconds) == {"a", "b"}


# The machine's clock


def test_the_lock_keeps_others_out_and_is_freed_by_a_death(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    script = (
        "import sys, time; from pathlib import Path; from compiler.measure.lock import measuring\n"
        "with measuring(lambda: False, Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    holder = subprocess.Popen([sys.executable, "-c", script, str(lock)], stdout=subprocess.PIPE, env=env)
    assert holder.stdout is not None
    assert holder.stdout.readline().strip() == b"held"
    asked: list[float] = []

    def gives_up() -> bool:
        asked.append(time.monotonic())
        return len(asked) > 3

    with measuring(gives_up, lock):
        assert len(asked) > 3
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with measuring(lambda: not asked.append(0.0) and len(asked) > 200, lock):  # type: ignore[func-returns-value]
        assert len(asked) < 200


def test_without_a_place_for_the_lock_measuring_goes_on(tmp_path: Path) -> None:
    with measuring(lambda: False, tmp_path / "absent" / "lock"):
        assert not (tmp_path / "absent").exists()
