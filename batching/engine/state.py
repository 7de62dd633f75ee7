"""Everything the engine remembers between steps. Data only: `plan` reads, `apply` and `absorb` write."""

from __future__ import annotations

from dataclasses import dataclass, field

from batching.engine.config import EngineConfig
from batching.engine.pool import BlockPool
from batching.engine.sequence import RequestState, Sequence
from batching.engine.waiting import WaitingQueue


@dataclass(slots=True)
class Counters:
    """Totals since the engine began. `prompt_tokens` counts a prompt once, however often it is recomputed."""

    steps: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    aborts: int = 0


@dataclass(slots=True)
class EngineState:
    """`sequences` holds the unfinished by number, each also in one of `waiting` and `running`.

    Only running sequences hold blocks.
    """

    config: EngineConfig
    max_context: int
    pool: BlockPool
    requests: dict[str, RequestState] = field(default_factory=dict)
    sequences: dict[int, Sequence] = field(default_factory=dict)
    waiting: WaitingQueue = field(default_factory=WaitingQueue)
    running: dict[int, Sequence] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    next_number: int = 0

    @property
    def ceiling_tokens(self) -> int:
        """Tokens of the longest sequence that the pool can hold by itself."""
        return self.pool.count * self.pool.block_size
