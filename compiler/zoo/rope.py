"""The rotary tables of a model, rounded where transformers rounds: frequencies and angles are f32."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from compiler.checkpoint import ModelConfig, Rope, RopeKind
from compiler.nn.rotary import COS, SIN

F32Array = npt.NDArray[np.float32]


def rope_tables(config: ModelConfig, max_context: int) -> dict[str, F32Array]:
    """`rope.cos` and `rope.sin`, f32 [max_context, head_dim / 2]."""
    positions = np.arange(max_context, dtype=np.float32)
    angles = positions[:, None] * inverse_frequencies_f32(config.rope, config.head_dim)[None, :]
    wide = angles.astype(np.float64)
    return {COS: np.cos(wide).astype(np.float32), SIN: np.sin(wide).astype(np.float32)}


def inverse_frequencies_f32(rope: Rope, head_dim: int) -> F32Array:
    """Angle per position of each rotation, each operation rounded to f32.

    Source: transformers' rope utilities.
    """
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    base = np.float64(np.float32(rope.theta))
    plain: F32Array = np.float32(1.0) / np.power(base, exponents.astype(np.float64)).astype(np.float32)
    match rope.kind:
        case RopeKind.DEFAULT:
            return plain
        case RopeKind.LINEAR:
            return plain / np.float32(rope.factor)
        case RopeKind.LLAMA3:
            return _llama3(rope, plain)
        case RopeKind.DIVISORS:
            divisors: F32Array = np.asarray(rope.divisors, dtype=np.float32)
            return np.divide(plain, divisors)


def _llama3(rope: Rope, plain: F32Array) -> F32Array:
    """Keep short wavelengths, divide long ones by the factor, and blend between."""
    low, high, factor = rope.low_freq_factor, rope.high_freq_factor, np.float32(rope.factor)
    original = rope.original_max_position_embeddings
    wavelength = np.float32(2 * math.pi) / plain
    scaled = np.where(wavelength > np.float32(original / low), plain / factor, plain)
    blend = (np.float32(original) / wavelength - np.float32(low)) / np.float32(high - low)
    blended = (np.float32(1) - blend) * scaled / factor + blend * scaled
    is_between = (wavelength >= np.float32(original / high)) & (wavelength <= np.float32(original / low))
    return np.where(is_between, blended, scaled).astype(np.float32)
