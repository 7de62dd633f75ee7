"""What the engine knows of a request and of each of its sequences."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from batching.engine.ports import Constraint, Draw, History, TextStream
from batching.engine.stops import StopMatcher
from common.wire import GenerateRequest, TokenLogprob


class Status(StrEnum):
    """WAITING <-> RUNNING (preemption goes back), then FINISHED for good."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class RequestState:
    """One request: `seed` keys its draws, `is_started` once any of its tokens was scheduled."""

    request: GenerateRequest
    seed: int
    priority: int
    sequences: list[Sequence] = field(default_factory=list)
    is_started: bool = False

    @property
    def is_done(self) -> bool:
        return all(s.status is Status.FINISHED for s in self.sequences)

    @property
    def prompt_tokens(self) -> int:
        """Counted once for all sequences, and only when work on them began."""
        return len(self.request.prompt_ids) if self.is_started else 0

    @property
    def completion_tokens(self) -> int:
        return sum(s.output_count for s in self.sequences)


@dataclass(slots=True, eq=False)
class Sequence:
    """One token stream. `tokens` is prompt then output; the first `computed` of them have keys and values.

    `number` rises in order of arrival and names the sequence in plans. `scored` counts the prompt positions
    whose log-probabilities are known.
    """

    number: int
    owner: RequestState
    index: int
    tokens: array[int]
    text: TextStream
    stops: StopMatcher
    constraint: Constraint | None = None
    blocks: array[int] = field(default_factory=lambda: array("i"))
    computed: int = 0
    scored: int = 0
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    status: Status = Status.WAITING

    @property
    def rank(self) -> tuple[int, int]:
        """Order of service: a lower priority number first, then the earlier arrival."""
        return self.owner.priority, self.number

    @property
    def prompt_count(self) -> int:
        return len(self.owner.request.prompt_ids)

    @property
    def output_count(self) -> int:
        return len(self.tokens) - self.prompt_count

    @property
    def remaining(self) -> int:
        """Tokens whose keys and values are still missing."""
        return len(self.tokens) - self.computed

    @property
    def scores_prompt(self) -> bool:
        request = self.owner.request
        return request.echo and request.logprobs is not None

    def scored_by(self, start: int, count: int) -> range:
        """Positions of a chunk whose logits score the prompt token that follows them."""
        if not self.scores_prompt:
            return range(0)
        return range(max(start, self.scored), min(start + count, self.prompt_count - 1))

    def draws_after(self, start: int, count: int) -> bool:
        """Whether a chunk reaches the last token, so that the next one can be drawn."""
        return start + count == len(self.tokens) and self.owner.request.max_tokens > 0

    def draw(self) -> Draw:
        """How to pick the token after the last one."""
        request = self.owner.request
        sampling = request.sampling
        is_penalised = (
            sampling.presence_penalty != 0.0
            or sampling.frequency_penalty != 0.0
            or sampling.repetition_penalty != 1.0
        )
        return Draw(
            sampling=sampling,
            seed=self.owner.seed,
            stream=self.index,
            position=len(self.tokens),
            history=self._history() if is_penalised else None,
            suppressed=request.stop_ids if self.output_count < request.min_tokens else (),
            allowed=None if self.constraint is None else self.constraint.mask(),
            logprobs=request.logprobs,
        )

    def _history(self) -> History:
        ids = np.array(self.tokens, dtype=np.int32)
        return History(ids[: self.prompt_count], ids[self.prompt_count :])
