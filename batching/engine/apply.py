"""Carrying out a plan: the only code that moves sequences and blocks. Decides nothing."""

from __future__ import annotations

from batching.engine.plan import StepPlan
from batching.engine.sequence import Sequence, Status
from batching.engine.state import EngineState


def apply(state: EngineState, plan: StepPlan) -> None:
    """Make the state what the plan says: blocks move, `computed` advances as if the step had run."""
    for number in plan.preempted:
        sequence = state.running.pop(number)
        _drop_blocks(state, sequence)
        sequence.status = Status.WAITING
        state.waiting.add(sequence)
        state.counters.preemptions += 1
    for admission in plan.admitted:
        sequence = state.sequences[admission.number]
        state.waiting.remove(sequence)
        state.pool.share(admission.shared)
        sequence.blocks.extend(admission.shared)
        sequence.status = Status.RUNNING
        state.running[sequence.number] = sequence
    for chunk in plan.chunks:
        sequence = state.running[chunk.number]
        state.pool.allocate(chunk.new_blocks)
        sequence.blocks.extend(chunk.new_blocks)
        sequence.computed = chunk.start + chunk.count


def enqueue(state: EngineState, sequence: Sequence) -> None:
    """Let a new sequence wait for its place."""
    state.sequences[sequence.number] = sequence
    state.waiting.add(sequence)


def retire(state: EngineState, sequence: Sequence) -> None:
    """Take an unfinished sequence out of service, wherever it is; its blocks are free at once."""
    del state.sequences[sequence.number]
    if sequence.status is Status.RUNNING:
        del state.running[sequence.number]
    else:
        state.waiting.remove(sequence)
    _drop_blocks(state, sequence)
    sequence.status = Status.FINISHED


def _drop_blocks(state: EngineState, sequence: Sequence) -> None:
    state.pool.release(reversed(sequence.blocks))
    del sequence.blocks[:]
    sequence.computed = 0
