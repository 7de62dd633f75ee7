"""The contest: which of several candidates is fastest on a noisy clock, and how sure that is. Pure.

Every round takes one sample of each candidate that is still in, in turns, so that drift meets all alike.
Candidates are compared by their ratios within rounds: the median, and an interval from the median absolute
deviation, which single spikes do not move. One that is clearly slower than the leader is out; whoever stood
before the contest is replaced only by what is clearly faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, isfinite, log, sqrt
from statistics import median

Take = Callable[[int, Sequence[str]], Mapping[str, float]]
"""Seconds of each named candidate in the round of that number, taken in that order."""

_NORMAL = 1.4826 * 1.2533
"""From a median absolute deviation to the deviation of a median, for normal noise."""
_LEAST = 0.004
"""No clock is better than this: a deviation of a few equal samples is not zero."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """Nobody is out before `first` rounds; `most` end it. Candidates nearer than `alike` need not be told
    apart.
    """

    first: int = 4
    most: int = 15
    alike: float = 0.01


@dataclass(frozen=True, slots=True)
class Interval:
    """The logarithm of a ratio of two times, and between what it surely lies."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Standing:
    """`seconds` of every candidate, on the incumbent's scale. Those in `doubtful` look faster than it, and
    may not be.
    """

    seconds: Mapping[str, float]
    doubtful: frozenset[str]
    ratios: Mapping[str, Interval]
    rounds: int
    samples: int


def race(
    incumbent: str,
    others: Sequence[str],
    take: Take,
    rounds: Rounds = Rounds(),
    is_over: Callable[[], bool] = lambda: False,
) -> Standing:
    """Run the contest. With `is_over` it ends after the round in hand; one round is always taken."""
    samples: dict[str, list[float]] = {name: [] for name in dict.fromkeys((incumbent, *others))}
    still_in = list(samples)
    number = 0
    while number < rounds.most and (number == 0 or (len(still_in) > 1 and not is_over())):
        turn = number % len(still_in)
        order = still_in[turn:] + still_in[:turn]
        taken = take(number, order if number % 2 == 0 else order[::-1])
        for name in still_in:
            samples[name].append(taken[name])
        number += 1
        if number >= rounds.first:
            contenders = _contenders(still_in, samples)
            if _are_alike(contenders, samples, rounds.alike):
                break
            still_in = [n for n in still_in if n in contenders or n == incumbent]
    ratios = {name: ratio(samples[name], samples[incumbent]) for name in samples}
    doubtful = frozenset(n for n, r in ratios.items() if r.middle < 0.0 <= r.high)
    count = sum(map(len, samples.values()))
    return Standing(_seconds(incumbent, samples, ratios), doubtful, ratios, number, count)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """How long `ours` take of `theirs`, over the rounds that both were in."""
    if not all(map(isfinite, ours)):
        return Interval(inf, inf, inf)
    logs = [
        log(max(a, 1e-12)) - log(max(b, 1e-12)) for a, b in zip(ours, theirs, strict=False) if isfinite(b)
    ]
    if not logs:
        return Interval(-inf, -inf, -inf)
    n, middle = len(logs), median(logs)
    deviation = max(_NORMAL * median(abs(x - middle) for x in logs), _LEAST)
    wide = 2.0 * (1.0 + 4.0 / n) * deviation / sqrt(n)  # few samples tell little of their own deviation
    return Interval(middle, middle - wide, middle + wide)


def _contenders(names: Sequence[str], samples: Mapping[str, Sequence[float]]) -> list[str]:
    """Those that are not clearly slower than the leader."""
    leader = min(names, key=lambda n: median(samples[n]))
    return [n for n in names if ratio(samples[n], samples[leader]).low <= 0.0]


def _are_alike(names: Sequence[str], samples: Mapping[str, Sequence[float]], alike: float) -> bool:
    leader = min(names, key=lambda n: median(samples[n]))
    found = [ratio(samples[n], samples[leader]) for n in names]
    return all(r.high <= alike for r in found)


def _seconds(
    incumbent: str, samples: Mapping[str, Sequence[float]], ratios: Mapping[str, Interval]
) -> dict[str, float]:
    """The median of the incumbent's own samples, and of the others by their ratio to it."""
    own = median(samples[incumbent])
    if not isfinite(own):
        return {name: median(taken) for name, taken in samples.items()}
    return {name: own * exp(r.middle) if isfinite(r.middle) else inf for name, r in ratios.items()}
