"""Values for a graph's inputs and weights: floats of a kind, and indices that stay inside what they index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.ir import DType, Graph, bind, round_to_bf16

Array = npt.NDArray[Any]


def values_of(graph: Graph, dims: Mapping[str, int], seed: int = 0, scale: float = 1.0) -> dict[str, Array]:
    """Storage arrays by name. `block_tables` hold distinct blocks, `positions` lie inside the columns."""
    rng = np.random.default_rng(seed)
    limits = {
        "positions": dims.get("S", dims.get("M", 0) * 16),
        "sequence": dims.get("B", 1),
        "block_tables": dims.get("NB", 1),
    }
    out: dict[str, Array] = {}
    for name, node in {**graph.inputs, **graph.weights}.items():
        shape = tuple(bind(size, dims) for size in node.shape)
        if node.dtype is DType.I32:
            out[name] = _indices(rng, name, shape, limits[name])
        elif node.dtype is DType.BOOL:
            mask = rng.integers(0, 2, shape).astype(np.bool_)
            mask[..., 0] = True  # a row that sees nothing is NaN in the reference
            out[name] = mask
        else:
            x = (rng.standard_normal(shape) * scale).astype(np.float32)
            out[name] = round_to_bf16(x) if node.dtype is DType.BF16 else x
    return out


def _indices(rng: np.random.Generator, name: str, shape: tuple[int, ...], limit: int) -> Array:
    if name == "block_tables":
        return (rng.permutation(limit - 1)[: int(np.prod(shape))] + 1).reshape(shape).astype(np.int32)
    return rng.integers(0, limit, shape).astype(np.int32)
