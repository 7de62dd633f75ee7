"""Who runs in the next step. `plan` is a pure function of the state: no clock, no randomness, no change.

One rule serves everything: each sequence's `computed` catches up with its tokens under one token budget. A
decode lacks one token, a prefill many, a resumed sequence all. Decodes come first; a decode without a free
block preempts the last in rank, which recomputes later. A sequence is admitted with the blocks for all its
tokens, so a prefill never preempts, and with a block to spare for each other one, so that it is not
preempted at once.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence as Items
from dataclasses import dataclass

from batching.engine.sequence import Sequence, Status
from batching.engine.state import EngineState


@dataclass(frozen=True, slots=True)
class Chunk:
    """Compute `count` tokens of a sequence from position `start` on, with these blocks added to its table."""

    number: int
    start: int
    count: int
    new_blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Admission:
    """Start a waiting sequence; `shared` are a sibling's full prompt blocks, already computed."""

    number: int
    shared: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step: who loses its blocks, who starts, what is computed. Chunks follow the order of service."""

    preempted: tuple[int, ...]
    admitted: tuple[Admission, ...]
    chunks: tuple[Chunk, ...]

    @property
    def token_count(self) -> int:
        return sum(chunk.count for chunk in self.chunks)


def plan(state: EngineState) -> StepPlan:
    """Choose the next step's work. Cost is linear in the sequences that are running or admitted."""
    draft = _Draft(state)
    order = sorted(state.running.values(), key=lambda s: s.rank)
    _plan_decodes(draft, order)
    for sequence in order:
        if sequence.remaining > 1 and sequence.number not in draft.preempted:
            draft.schedule(sequence, sequence.computed)
    if not draft.preempted:
        _plan_admissions(draft, state)
    return StepPlan(tuple(draft.preempted), tuple(draft.admitted), tuple(draft.chunks))


def _plan_decodes(draft: _Draft, order: Items[Sequence]) -> None:
    """A token for each decode; a missing block is taken from the last in rank, possibly the decode itself."""
    last = len(order) - 1
    for sequence in order:
        if sequence.remaining != 1 or sequence.number in draft.preempted:
            continue
        missing = draft.missing_blocks(sequence)
        while missing > draft.free_count and sequence.number not in draft.preempted:
            draft.preempt(order[last])
            last -= 1
        if sequence.number not in draft.preempted:
            draft.schedule(sequence, sequence.computed, draft.take(missing))


def _plan_admissions(draft: _Draft, state: EngineState) -> None:
    """Admit in order until something does not fit; only who waits for a sibling is passed over."""
    passed_over: set[int] = set()
    for sequence in state.waiting:
        if id(sequence.owner) in passed_over:
            continue
        places = state.config.max_sequences - len(state.running) - len(draft.admitted)
        if places <= 0 or draft.budget <= 0 or draft.rows <= 0:
            return
        shareable = _shareable_tokens(sequence, state.pool.block_size)
        donor = _donor(sequence, draft)
        if donor is not None and shareable and donor.computed < shareable:
            passed_over.add(id(sequence.owner))
            continue
        shared = tuple(donor.blocks[: state.pool.blocks_for(shareable)]) if donor is not None else ()
        missing = draft.missing_blocks(sequence) - len(shared)
        spare = len(state.running) + len(draft.admitted)
        if missing + spare > draft.free_count:
            return
        draft.admit(sequence, shared)
        draft.schedule(sequence, len(shared) * state.pool.block_size, draft.take(missing))


def _shareable_tokens(sequence: Sequence, block_size: int) -> int:
    """Prompt tokens in full blocks, the last prompt token left out: it is computed for its logits."""
    if sequence.scores_prompt:
        return 0
    return (sequence.prompt_count - 1) // block_size * block_size


def _donor(sequence: Sequence, draft: _Draft) -> Sequence | None:
    """A sibling that runs or was just admitted; the one furthest ahead."""
    siblings = [s for s in sequence.owner.sequences if s.status is Status.RUNNING or draft.has_admitted(s)]
    return max(siblings, key=lambda s: s.computed, default=None)


class _Draft:
    """The plan in the making: what is left of budget, logit rows and blocks, with the state left alone."""

    def __init__(self, state: EngineState) -> None:
        self.budget = state.config.max_batched_tokens
        self.rows = state.config.max_sequences
        self.preempted: dict[int, None] = {}
        self.admitted: list[Admission] = []
        self.chunks: list[Chunk] = []
        self._pool = state.pool
        self._fresh = state.pool.free_blocks()
        self._fresh_count = state.pool.free_count
        self._released: deque[int] = deque()
        self._dropped: Counter[int] = Counter()
        self._admitted_numbers: set[int] = set()

    @property
    def free_count(self) -> int:
        return self._fresh_count + len(self._released)

    def has_admitted(self, sequence: Sequence) -> bool:
        return sequence.number in self._admitted_numbers

    def missing_blocks(self, sequence: Sequence) -> int:
        return self._pool.blocks_for(len(sequence.tokens)) - len(sequence.blocks)

    def take(self, count: int) -> tuple[int, ...]:
        """The next blocks to be reused: those free before this step, then those of the preempted."""
        fresh = min(count, self._fresh_count)
        self._fresh_count -= fresh
        blocks = [next(self._fresh) for _ in range(fresh)]
        blocks += [self._released.popleft() for _ in range(count - fresh)]
        return tuple(blocks)

    def preempt(self, sequence: Sequence) -> None:
        self.preempted[sequence.number] = None
        for block in reversed(sequence.blocks):
            self._dropped[block] += 1
            if self._dropped[block] == self._pool.references(block):
                self._released.append(block)

    def admit(self, sequence: Sequence, shared: tuple[int, ...]) -> None:
        self.admitted.append(Admission(sequence.number, shared))
        self._admitted_numbers.add(sequence.number)

    def schedule(self, sequence: Sequence, start: int, new_blocks: tuple[int, ...] = ()) -> None:
        """Spend budget and logit rows on as many tokens from `start` on as they allow; none is no chunk."""
        count = min(len(sequence.tokens) - start, self.budget)
        while count and _rows(sequence, start, count) > self.rows:
            count = _shorter(sequence, start, count, self.rows)
        if count or new_blocks:
            self.chunks.append(Chunk(sequence.number, start, count, new_blocks))
        self.budget -= count
        self.rows -= _rows(sequence, start, count) if count else 0


def _rows(sequence: Sequence, start: int, count: int) -> int:
    return len(sequence.scored_by(start, count)) + sequence.draws_after(start, count)


def _shorter(sequence: Sequence, start: int, count: int, rows: int) -> int:
    """A smaller count that asks for fewer logit rows: first without the draw, then with fewer scores."""
    if sequence.draws_after(start, count):
        return count - 1
    scored = sequence.scored_by(start, count)
    return scored.start + rows - start
