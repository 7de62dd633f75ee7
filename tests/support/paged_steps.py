"""Drives a paged Llama step the way the engine does: chunks of sequences, shuffled blocks, padding tokens.

`PagedBatches` owns block tables and makes each step's arrays; whoever runs the step owns the caches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.ir import Graph, bind, evaluate, to_numpy_storage

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Chunk:
    """`length` tokens of `sequence` (an index) from position `start`."""

    sequence: int
    start: int
    length: int


def chunked_schedule(lengths: Sequence[int], chunk: int, decode_last: int) -> list[list[Chunk]]:
    """Steps that prefill every sequence in chunks, staggered, then decode its last tokens one by one.

    Sequence k starts k steps late, so that steps mix prefill and decode.
    """
    plans: list[list[Chunk]] = []
    for sequence, length in enumerate(lengths):
        prefill_end = max(length - decode_last, 1)
        starts = list(range(0, prefill_end, chunk))
        parts = [Chunk(sequence, s, min(chunk, prefill_end - s)) for s in starts]
        parts += [Chunk(sequence, s, 1) for s in range(prefill_end, length)]
        plans.append(parts)
    steps: list[list[Chunk]] = []
    for sequence, parts in enumerate(plans):
        for k, part in enumerate(parts):
            while len(steps) <= sequence + k:
                steps.append([])
            steps[sequence + k].append(part)
    return [step for step in steps if step]


class PagedBatches:
    """The input arrays of each step over given token sequences.

    Blocks are handed out in a shuffled order; unused table entries name block 0. `padding` adds that many
    tokens whose slots lie outside the pool, alternately negative and beyond its end.
    """

    def __init__(
        self,
        sequences: Sequence[Sequence[int]],
        *,
        blocks: int,
        block_size: int = 16,
        padding: int = 0,
        seed: int = 0,
    ) -> None:
        self.sequences = sequences
        self.blocks = blocks
        self._size = block_size
        self._padding = padding
        self._width = max(-(-len(s) // block_size) for s in sequences)
        free = list(np.random.default_rng(seed).permutation(blocks))
        self.tables = np.zeros((len(sequences), self._width), dtype=np.int32)
        for row, tokens in enumerate(sequences):
            for m in range(-(-len(tokens) // block_size)):
                self.tables[row, m] = free.pop()

    def arrays(self, step: Sequence[Chunk], logit_rows: Sequence[int] | None = None) -> Arrays:
        """Inputs of one step; every real token is a logit row unless `logit_rows` says which are."""
        where = [(c.sequence, p) for c in step for p in range(c.start, c.start + c.length)]
        slots = [self.tables[s, p // self._size] * self._size + p % self._size for s, p in where]
        outside = [-1 - k if k % 2 else self.blocks * self._size + k for k in range(self._padding)]
        rows = range(len(where)) if logit_rows is None else logit_rows
        columns = {
            "tokens": [self.sequences[s][p] for s, p in where] + [0] * self._padding,
            "positions": [p for _, p in where] + [0] * self._padding,
            "sequence": [s for s, _ in where] + [0] * self._padding,
            "slots": slots + outside,
            "logit_rows": list(rows),
        }
        arrays = {name: np.array(column, dtype=np.int32) for name, column in columns.items()}
        return {**arrays, "block_tables": self.tables}


def run_reference(
    graph: Graph,
    weights: Mapping[str, np.ndarray],
    batches: PagedBatches,
    steps: Sequence[Sequence[Chunk]],
    *,
    precise: bool = False,
    fill: Callable[[tuple[int, ...]], np.ndarray] = np.zeros,
) -> list[np.ndarray]:
    """Logits [positions, vocab] of each sequence, by the reference interpreter over `steps`.

    The caches start as `fill` makes them (storage dtype applied), so that a test can leave rubbish in them.
    """
    caches = {}
    for name in graph.aliases.values():
        node = graph.inputs[name]
        shape = tuple(bind(size, {"NB": batches.blocks}) for size in node.shape)
        caches[name] = fill(shape).astype(to_numpy_storage(node.dtype))
    rows: list[dict[int, np.ndarray]] = [{} for _ in batches.sequences]
    for step in steps:
        outputs = evaluate(graph, {**weights, **caches, **batches.arrays(step)}, precise=precise)
        caches = {name: outputs[name] for name in caches}
        where = [(c.sequence, p) for c in step for p in range(c.start, c.start + c.length)]
        for (sequence, position), logits in zip(where, outputs["logits"], strict=True):
            rows[sequence][position] = logits
    return [np.stack([found[p] for p in sorted(found)]) for found in rows]
