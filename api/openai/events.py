"""A replica's frames as events of an answer's choices. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from common.wire import Delta, Finished, FinishReason, Frame, TokenLogprob


@dataclass(frozen=True, slots=True)
class Unscored:
    """A token without a log-probability: the first of a prompt has nothing before it."""

    text: str


Scored = TokenLogprob | Unscored


@dataclass(frozen=True, slots=True)
class Piece:
    """New text of one choice, made of `tokens` new tokens. Their characters may not be whole yet: then no
    text.
    """

    choice: int
    text: str
    tokens: int = 0
    logprobs: tuple[Scored, ...] = ()


@dataclass(frozen=True, slots=True)
class End:
    """A choice is complete."""

    choice: int
    reason: FinishReason


Event = Piece | End


@dataclass(frozen=True, slots=True)
class Echo:
    """A prompt that the answer repeats: its text, and its first token's text when log-probabilities are
    wanted.
    """

    text: str
    first_token: str | None = None


def events(group: Iterable[tuple[int, Frame]], n: int, echoes: Sequence[Echo] = ()) -> list[Event]:
    """Events of a group of (prompt number, frame). Choice `i` of prompt `p` is number `p * n + i`."""
    found: list[Event] = []
    for prompt, frame in group:
        if isinstance(frame, Finished):
            found.append(End(prompt * n + frame.index, frame.reason))
        elif isinstance(frame, Delta):
            found.append(_piece(frame, prompt * n + frame.index, echoes[prompt] if echoes else None))
    return found


def opening_echoes(echoes: Sequence[Echo], n: int) -> list[Event]:
    """The prompts' own text, before any token; with log-probabilities the replica's scores bring it
    instead.
    """
    return [
        Piece(prompt * n + index, echo.text)
        for prompt, echo in enumerate(echoes)
        if echo.first_token is None
        for index in range(n)
    ]


def _piece(frame: Delta, choice: int, echo: Echo | None) -> Piece:
    if frame.completion_tokens == 0 and echo is not None and echo.first_token is not None:
        return Piece(choice, echo.text, 0, (Unscored(echo.first_token), *frame.logprobs))
    return Piece(choice, frame.text, len(frame.ids), frame.logprobs)
