"""The engine: continuous batching over a paged KV pool. Plan, apply, step the Program, absorb; nothing else.

No clock, no I/O, no randomness of its own: the same calls give the same events. One thread owns it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass

from batching.engine.absorb import Event, absorb, end
from batching.engine.admission import admit
from batching.engine.apply import apply, enqueue, retire
from batching.engine.config import EngineConfig
from batching.engine.pack import pack
from batching.engine.plan import plan
from batching.engine.pool import BlockPool
from batching.engine.ports import Constraint, Detokenizer, Program
from batching.engine.sequence import RequestState, Sequence
from batching.engine.state import EngineState
from batching.engine.stops import StopMatcher
from common.wire import Finished, FinishReason, GenerateRequest


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Gauges count sequences and blocks now; the rest are totals since the engine began."""

    running: int
    waiting: int
    kv_blocks_total: int
    kv_blocks_used: int
    steps: int
    prompt_tokens: int
    generation_tokens: int
    preemptions: int
    aborts: int


class Engine:
    """Serves requests by calling `program.step` until none is left.

    Raises: `InvalidInput` when `config` asks for more than `program` can do.
    """

    def __init__(self, config: EngineConfig, program: Program, detokenizer: Detokenizer) -> None:
        config.check(program)
        self._program = program
        self._detokenizer = detokenizer
        pool = BlockPool(config.kv_blocks, program.block_size)
        self._state = EngineState(config, program.max_context, pool)

    @property
    def has_work(self) -> bool:
        return bool(self._state.sequences)

    def submit(
        self,
        request: GenerateRequest,
        *,
        random_seed: int,
        priority: int = 0,
        constraint: Callable[[], Constraint] | None = None,
    ) -> None:
        """Queue `request`; its events come from `step`. `random_seed` is used when the request names no seed.

        A lower `priority` is served earlier. `constraint` makes one for each sequence.

        Raises: as `admission.admit` does; then nothing was queued.
        """
        admit(self._state, request, self._program.vocab_size)
        seed = random_seed if request.sampling.seed is None else request.sampling.seed
        owner = RequestState(request, seed, priority)
        self._state.requests[request.request_id] = owner
        for index in range(request.n):
            sequence = Sequence(
                number=self._state.next_number,
                owner=owner,
                index=index,
                tokens=array("i", request.prompt_ids),
                text=self._detokenizer.stream(),
                stops=StopMatcher(request.stop),
                constraint=constraint() if constraint is not None else None,
            )
            self._state.next_number += 1
            owner.sequences.append(sequence)
            enqueue(self._state, sequence)

    def abort(self, request_id: str) -> tuple[Event, ...]:
        """End a request at once, whatever it is doing; its blocks are free on return. Unknown: no events."""
        owner = self._state.requests.get(request_id)
        if owner is None:
            return ()
        self._state.counters.aborts += 1
        events = []
        for sequence in owner.sequences:
            if sequence.number in self._state.sequences:
                retire(self._state, sequence)
                frame = Finished(sequence.index, FinishReason.ABORT, sequence.output_count)
                events.append(Event(request_id, frame))
        return (*events, end(self._state, owner))

    def step(self) -> tuple[Event, ...]:
        """Run one forward pass and return what it changed. Without work it does nothing."""
        chosen = plan(self._state)
        if not chosen.chunks:
            assert not self.has_work, "whatever waits can be served, so there is always a chunk"
            return ()
        apply(self._state, chosen)
        outcomes = self._program.step(pack(self._state, chosen))
        return tuple(absorb(self._state, chosen, outcomes, self._detokenizer))

    def stats(self) -> EngineStats:
        state, counters = self._state, self._state.counters
        return EngineStats(
            running=len(state.running),
            waiting=len(state.waiting),
            kv_blocks_total=state.pool.count,
            kv_blocks_used=state.pool.used_count,
            steps=counters.steps,
            prompt_tokens=counters.prompt_tokens,
            generation_tokens=counters.generation_tokens,
            preemptions=counters.preemptions,
            aborts=counters.aborts,
        )
