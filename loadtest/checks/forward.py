"""Logits of a compiled program on given ids, without the engine: what it would say after each prefix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from compiler.runtime import Program, StepBatch

Floats = NDArray[np.float32]


def teacher_forced(program: Program, ids: Sequence[int], chunks: Sequence[int]) -> Floats:
    """Logits [tokens, vocabulary] after every token of `ids`, computed `chunks` tokens a step.

    The last entry of `chunks` repeats until the ids end. The sequence takes the first blocks of the cache.
    """
    blocks = -(-len(ids) // program.block_size)
    assert blocks < program.kv_blocks, "the program was loaded with room for the sequence"
    table = np.arange(1, blocks + 1, dtype=np.int32)
    rows = np.empty((len(ids), program.vocab_size), dtype=np.float32)
    for start, count in _spans(len(ids), chunks):
        positions = np.arange(start, start + count, dtype=np.int32)
        batch = StepBatch(
            token_ids=np.array(ids[start : start + count], dtype=np.int32),
            positions=positions,
            sequence_index=np.zeros(count, dtype=np.int32),
            slots=table[positions // program.block_size] * program.block_size
            + positions % program.block_size,
            block_tables=table[None],
            logit_rows=np.arange(count, dtype=np.int32),
        )
        rows[start : start + count] = program.step(batch)
    return rows


def prefill_then_decode(length: int, decoded: int, chunk: int) -> list[int]:
    """Chunk sizes that bring all but `decoded` tokens of a sequence in by prefill, the rest one by one."""
    prefill = max(length - decoded, 0)
    whole, rest = divmod(prefill, chunk)
    return [*[chunk] * whole, *([rest] if rest else []), 1]


def _spans(length: int, chunks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Start and size of each step."""
    start, left = 0, list(chunks)
    while start < length:
        count = min(left.pop(0) if len(left) > 1 else left[0], length - start)
        yield start, count
        start += count
