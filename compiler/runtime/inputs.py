"""Brings a StepBatch into a program's input buffers. Every index is checked here: kernels check none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.runtime.batch import Int32s, StepBatch
from compiler.runtime.errors import StepRefused

Array = npt.NDArray[Any]

FIELDS = {
    "tokens": "token_ids",
    "positions": "positions",
    "sequence": "sequence_index",
    "slots": "slots",
    "block_tables": "block_tables",
    "logit_rows": "logit_rows",
}
"""A step graph's input, and the StepBatch field that fills it."""


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What the indices of a batch must stay below, and how large each dim may be."""

    vocab_size: int
    max_context: int
    block_size: int
    kv_blocks: int
    dims: Mapping[str, tuple[int, int]]


class StepInputs:
    """The input buffers of one program: flat, int32, large enough for every batch within the limits."""

    def __init__(self, buffers: Mapping[str, Array], limits: StepLimits) -> None:
        self._limits = limits
        self._copies = [(buffer, FIELDS[name]) for name, buffer in buffers.items()]

    def write(self, batch: StepBatch) -> dict[str, int]:
        """Check the batch, copy it in, and say how large each dim is.

        Raises:
            StepRefused: an array of another type or shape, too many of something, or an index out of range.
        """
        sizes = self._sizes(batch)
        self._check_indices(batch, sizes)
        for buffer, field in self._copies:
            values: Int32s = getattr(batch, field)
            buffer[: values.size] = values.reshape(-1)
        return sizes

    def _sizes(self, batch: StepBatch) -> dict[str, int]:
        for field in FIELDS.values():
            values = getattr(batch, field)
            rank = 2 if field == "block_tables" else 1
            if not isinstance(values, np.ndarray) or values.dtype != np.int32 or values.ndim != rank:
                raise StepRefused(field, f"must be an int32 array of {rank} axes")
            if not values.flags.c_contiguous:
                raise StepRefused(field, "must be C-contiguous")
        sequences, width = batch.block_tables.shape
        sizes = {"T": len(batch.token_ids), "R": len(batch.logit_rows), "B": sequences, "M": width}
        sizes["NB"] = self._limits.kv_blocks
        for name, field in (
            ("T", "token_ids"),
            ("R", "logit_rows"),
            ("B", "block_tables"),
            ("M", "block_tables"),
        ):
            low, high = self._limits.dims.get(name, (0, sizes[name]))
            if not low <= sizes[name] <= high:
                raise StepRefused(field, f"{name} = {sizes[name]} is outside {low}..{high}")
        for field in ("positions", "sequence_index", "slots"):
            if len(getattr(batch, field)) != sizes["T"]:
                raise StepRefused(field, f"has {len(getattr(batch, field))} rows, token_ids {sizes['T']}")
        return sizes

    def _check_indices(self, batch: StepBatch, sizes: Mapping[str, int]) -> None:
        limits = self._limits
        _below(batch.token_ids, limits.vocab_size, "token_ids")
        _below(batch.positions, min(limits.max_context, sizes["M"] * limits.block_size), "positions")
        _below(batch.sequence_index, sizes["B"], "sequence_index")
        _below(batch.slots, limits.kv_blocks * limits.block_size, "slots")
        _below(batch.block_tables, limits.kv_blocks, "block_tables")
        _below(batch.logit_rows, sizes["T"], "logit_rows")


def _below(values: Int32s, limit: int, field: str) -> None:
    """Seen as unsigned, a negative index is a large one, so that one comparison does for both ends."""
    if values.size and values.view(np.uint32).max() >= limit:
        worst = values.min() if values.min() < 0 else values.max()
        raise StepRefused(field, f"{worst} is outside 0..{limit - 1}")
