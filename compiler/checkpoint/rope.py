"""Rotary position embeddings as a config states them, and the frequencies they mean.

Default, linear and llama3 scaling, and the per-frequency divisors that a GGUF file carries instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class RopeKind(StrEnum):
    DEFAULT = "default"
    LINEAR = "linear"
    LLAMA3 = "llama3"
    DIVISORS = "divisors"


@dataclass(frozen=True, slots=True)
class Rope:
    """Base `theta` and its scaling. `factor` serves linear and llama3, the next three llama3 only.

    `divisors` serves `RopeKind.DIVISORS`: one number for each of the `head_dim / 2` frequencies.
    """

    theta: float = 10000.0
    kind: RopeKind = RopeKind.DEFAULT
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 0
    divisors: tuple[float, ...] = ()


def inverse_frequencies(rope: Rope, head_dim: int) -> tuple[float, ...]:
    """Angle per position of each of the `head_dim / 2` rotations, in the half-rotation order.

    Source: RoFormer (arXiv 2104.09864); linear: position interpolation (arXiv 2306.15595); llama3: as
    published with Llama 3.1, which keeps short wavelengths, divides long ones and blends between.
    """
    plain = [rope.theta ** (-i / head_dim) for i in range(0, head_dim, 2)]
    match rope.kind:
        case RopeKind.DEFAULT:
            return tuple(plain)
        case RopeKind.LINEAR:
            return tuple(frequency / rope.factor for frequency in plain)
        case RopeKind.LLAMA3:
            return tuple(_llama3(rope, frequency) for frequency in plain)
        case RopeKind.DIVISORS:
            assert len(rope.divisors) == len(plain), "checked when the checkpoint is inspected"
            return tuple(frequency / divisor for frequency, divisor in zip(plain, rope.divisors, strict=True))


def _llama3(rope: Rope, frequency: float) -> float:
    wavelength = 2 * math.pi / frequency
    turns = rope.original_max_position_embeddings / wavelength
    if turns > rope.high_freq_factor:
        return frequency
    if turns < rope.low_freq_factor:
        return frequency / rope.factor
    blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    return (1 - blend) * frequency / rope.factor + blend * frequency
