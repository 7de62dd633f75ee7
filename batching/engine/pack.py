"""From a plan to the arrays of one forward pass."""

from __future__ import annotations

import numpy as np

from batching.engine.plan import StepPlan
from batching.engine.pool import NULL_BLOCK
from batching.engine.ports import Draw, Score, StepInput
from batching.engine.state import EngineState


def pack(state: EngineState, plan: StepPlan) -> StepInput:
    """The step's input, once `plan` was applied. Cost is linear in tokens and table entries of the step."""
    token_ids: list[int] = []
    positions: list[int] = []
    logit_rows: list[int] = []
    picks: list[Draw | Score] = []
    sequences = [state.running[chunk.number] for chunk in plan.chunks]
    width = max(len(s.blocks) for s in sequences)
    tables = np.full((len(sequences), width), NULL_BLOCK, dtype=np.int32)
    for row, (sequence, chunk) in enumerate(zip(sequences, plan.chunks, strict=True)):
        first, end = len(token_ids), chunk.start + chunk.count
        tables[row, : len(sequence.blocks)] = sequence.blocks
        token_ids.extend(sequence.tokens[chunk.start : end])
        positions.extend(range(chunk.start, end))
        for position in sequence.scored_by(chunk.start, chunk.count):
            logit_rows.append(first + position - chunk.start)
            picks.append(Score(sequence.tokens[position + 1], sequence.owner.request.logprobs or 0))
        if sequence.draws_after(chunk.start, chunk.count):
            logit_rows.append(len(token_ids) - 1)
            picks.append(sequence.draw())
    counts = [chunk.count for chunk in plan.chunks]
    index = np.repeat(np.arange(len(sequences), dtype=np.int32), counts)
    place = np.array(positions, dtype=np.int32)
    size = np.int32(state.pool.block_size)
    return StepInput(
        token_ids=np.array(token_ids, dtype=np.int32),
        positions=place,
        sequence_index=index,
        slots=tables[index, place // size] * size + place % size,
        block_tables=tables,
        logit_rows=np.array(logit_rows, dtype=np.int32),
        picks=tuple(picks),
    )
