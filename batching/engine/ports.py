"""The three seams of the engine: the Program it steps, the text it streams, the constraints it obeys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from common.wire import Sampling

Int32s = NDArray[np.int32]
Bits = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class History:
    """A sequence's tokens so far, for penalties."""

    prompt_ids: Int32s
    output_ids: Int32s


@dataclass(frozen=True, slots=True)
class Draw:
    """Pick the next token of a sequence. Only `seed`, `stream` and `position` may key randomness.

    `suppressed` ids are never picked; `allowed` (a bit a token) names those that may be; `logprobs` asks
    for the picked token's log-probability and that many alternatives.
    """

    sampling: Sampling
    seed: int
    stream: int
    position: int
    history: History | None = None
    suppressed: tuple[int, ...] = ()
    allowed: Bits | None = None
    logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """Report the log-probability of a token that is already there, and `logprobs` alternatives."""

    token_id: int
    logprobs: int


@dataclass(frozen=True, slots=True)
class StepInput:
    """One forward pass over T token rows of B sequences, and what to do with the logits of R of them.

    Arrays are int32: `token_ids`, `positions`, `sequence_index` and `slots` [T]; `block_tables` [B, M],
    padded with the null block; `logit_rows` [R], ascending. Rows of one sequence are adjacent. `picks` has
    R entries.
    """

    token_ids: Int32s
    positions: Int32s
    sequence_index: Int32s
    slots: Int32s
    block_tables: Int32s
    logit_rows: Int32s
    picks: tuple[Draw | Score, ...]


@dataclass(frozen=True, slots=True)
class Picked:
    """A token and, when asked for, its natural-log probability and the likeliest `(id, logprob)`."""

    token_id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Broken:
    """The row's logits were not finite, or nothing was allowed."""


Outcome = Picked | Broken


class Program(Protocol):
    """A loaded model with its sampler. A row's outcome must not depend on the other rows of the step."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def max_context(self) -> int: ...
    @property
    def block_size(self) -> int: ...
    @property
    def max_batched_tokens(self) -> int: ...
    @property
    def max_sequences(self) -> int: ...

    def step(self, batch: StepInput) -> Sequence[Outcome]:
        """Run one forward pass and answer each of `batch.picks` in order."""
        ...


class TextStream(Protocol):
    """Turns one sequence's ids into text that never ends within a character."""

    def push(self, token_id: int) -> str:
        """Text that became complete with this token; may be empty."""
        ...

    def finish(self) -> str:
        """What is left: bytes that never became a character, as U+FFFD."""
        ...


class Detokenizer(Protocol):
    """Opens a `TextStream` a sequence, and names single tokens for log-probabilities."""

    def stream(self) -> TextStream: ...
    def token_text(self, token_id: int) -> str: ...


class Constraint(Protocol):
    """What one sequence may say next. Owned by that sequence; preemption does not rewind it."""

    @property
    def is_finished(self) -> bool:
        """Whether nothing may follow, so that the sequence stops."""
        ...

    def mask(self) -> Bits:
        """Allowed next tokens, a bit each, least significant first, in words of 32."""
        ...

    def advance(self, token_id: int) -> None:
        """Take the token that was picked under the last `mask`."""
        ...
