"""What one replica call has generated so far, read from the cumulative counts in its frames.

Tokens are never counted here: the engine counts, and the last count of each sequence wins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from common.wire import Delta, Ended, Finished, Frame, Started


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens of one call, or summed over several."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(slots=True)
class Tally:
    """Feed it each frame; `counts` is what may be billed if the stream ended now."""

    _prompt_tokens: int = 0
    _cached_tokens: int = 0
    _completion: dict[int, int] = field(default_factory=dict)

    def feed(self, frame: Frame) -> None:
        match frame:
            case Started() | Ended():
                self._prompt_tokens = max(self._prompt_tokens, frame.prompt_tokens)
                self._cached_tokens = max(self._cached_tokens, frame.cached_tokens)
            case Delta() | Finished():
                before = self._completion.get(frame.index, 0)
                self._completion[frame.index] = max(before, frame.completion_tokens)

    @property
    def has_tokens(self) -> bool:
        """Whether anything was generated: from then on the call can't be repeated elsewhere for free."""
        return any(self._completion.values())

    @property
    def counts(self) -> Counts:
        return Counts(self._prompt_tokens, self._cached_tokens, sum(self._completion.values()))


def total(counts: Iterable[Counts]) -> Counts:
    """Sum over the prompts of one request."""
    items = tuple(counts)
    return Counts(
        sum(c.prompt_tokens for c in items),
        sum(c.cached_tokens for c in items),
        sum(c.completion_tokens for c in items),
    )
