"""How far logits lie from the reference, and which tokens of a greedy answer differ. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Distance:
    """Logits of some positions against the reference's. Sums, so that distances of prompts add up."""

    positions: int = 0
    elements: int = 0
    squared: float = 0.0
    largest: float = 0.0
    divergence: float = 0.0
    agreeing: int = 0

    @property
    def rms(self) -> float:
        """Root of the mean squared difference of a logit."""
        return sqrt(self.squared / self.elements)

    @property
    def mean_divergence(self) -> float:
        """Kullback-Leibler divergence from the reference's distribution, a position's mean, in nats."""
        return self.divergence / self.positions

    @property
    def agreement(self) -> float:
        """Share of positions at which the likeliest token is the reference's."""
        return self.agreeing / self.positions

    def __add__(self, other: Distance) -> Distance:
        return Distance(
            self.positions + other.positions,
            self.elements + other.elements,
            self.squared + other.squared,
            max(self.largest, other.largest),
            self.divergence + other.divergence,
            self.agreeing + other.agreeing,
        )


def distance(logits: Floats, reference: Floats) -> Distance:
    """Compare logits [tokens, vocabulary]; anything that is not finite is infinitely far away."""
    assert logits.shape == reference.shape, "both answer the same ids"
    difference = logits.astype(np.float64) - reference
    difference[~np.isfinite(logits)] = np.inf
    return Distance(
        positions=len(logits),
        elements=logits.size,
        squared=float(np.square(difference).sum()),
        largest=float(np.abs(difference).max()),
        divergence=_divergence(logits, reference),
        agreeing=int((logits.argmax(axis=1) == reference.argmax(axis=1)).sum()),
    )


def _divergence(logits: Floats, reference: Floats) -> float:
    wanted, got = _log_softmax(reference), _log_softmax(logits)
    return float((np.exp(wanted) * (wanted - got)).sum())


def _log_softmax(logits: Floats) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    normal: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return normal


@dataclass(frozen=True, slots=True)
class Split:
    """A place where two greedy answers part. `margin` is the reference's, best logit over second."""

    place: int
    wanted: int
    got: int
    margin: float


def splits(
    wanted: Sequence[int], margins: Sequence[float], resume: Callable[[int], Sequence[int]]
) -> list[Split]:
    """Every place at which our greedy answer leaves the reference's.

    `resume(k)` is our answer after the prompt and the first `k` tokens of `wanted`: after a split the
    reference's token is taken, so that one near tie does not hide what follows.
    """
    found: list[Split] = []
    done = 0
    while done < len(wanted):
        got = list(resume(done))
        assert len(got) == len(wanted) - done, "both answers have one length"
        same = next((k for k, id_ in enumerate(got) if id_ != wanted[done + k]), len(got))
        done += same
        if same < len(got):
            found.append(Split(done, wanted[done], got[same], margins[done]))
            done += 1
    return found
