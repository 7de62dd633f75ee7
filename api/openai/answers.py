"""Frames in, OpenAI objects out: the same events build a stream's chunks and the whole answer. Pure.

Both dialects (`Chat`, `Completion`) share one `Envelope`; concatenating a stream gives the whole answer
because both are made from the same deltas, and neither drops or reorders one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from api.dispatch.tally import Counts
from api.openai.events import End, Event, Scored
from api.openai.logprobs import chat_logprobs, completion_logprobs
from common.wire import FinishReason

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every chunk of an answer repeats."""

    id: str
    created: int
    model: str
    fingerprint: str
    choices: int
    logprobs: int | None = None
    include_usage: bool = False
    continuous_usage: bool = False


class Dialect(Protocol):
    """One route's form of chunks and answers."""

    def opening(self, usage: Callable[[], Counts]) -> list[Json]: ...

    def chunk(self, event: Event, usage: Callable[[], Counts]) -> Json: ...

    def usage_chunk(self, counts: Counts) -> Json: ...

    def answer(self, events: list[Event], counts: Counts) -> Json: ...


def usage_json(counts: Counts) -> Json:
    return {
        "prompt_tokens": counts.prompt_tokens,
        "completion_tokens": counts.completion_tokens,
        "total_tokens": counts.total_tokens,
        "prompt_tokens_details": {"cached_tokens": counts.cached_tokens},
    }


class Chat:
    """`chat.completion` and `chat.completion.chunk`."""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope

    def opening(self, usage: Callable[[], Counts]) -> list[Json]:
        """The first chunk of each choice: its role, and no text."""
        role = {"role": "assistant", "content": ""}
        return [
            self._chunk({"index": i, "delta": role, "logprobs": None, "finish_reason": None}, usage)
            for i in range(self._envelope.choices)
        ]

    def chunk(self, event: Event, usage: Callable[[], Counts]) -> Json:
        if isinstance(event, End):
            reason = finish_reason(event.reason)
            choice: Json = {"index": event.choice, "delta": {}, "logprobs": None, "finish_reason": reason}
        else:
            choice = {
                "index": event.choice,
                "delta": {"content": event.text},
                "logprobs": self._logprobs(event.logprobs),
                "finish_reason": None,
            }
        return self._chunk(choice, usage)

    def usage_chunk(self, counts: Counts) -> Json:
        return {**_head(self._envelope, "chat.completion.chunk"), "choices": [], "usage": usage_json(counts)}

    def answer(self, events: list[Event], counts: Counts) -> Json:
        choices = []
        for index, whole in enumerate(_collect(events, self._envelope.choices)):
            message = {"role": "assistant", "content": whole.text, "refusal": None}
            choices.append(
                {
                    "index": index,
                    "message": message,
                    "logprobs": self._logprobs(tuple(whole.logprobs)),
                    "finish_reason": finish_reason(whole.reason),
                }
            )
        head = _head(self._envelope, "chat.completion")
        return {**head, "choices": choices, "usage": usage_json(counts)}

    def _chunk(self, choice: Json, usage: Callable[[], Counts]) -> Json:
        return _with_usage(
            {**_head(self._envelope, "chat.completion.chunk"), "choices": [choice]}, self._envelope, usage
        )

    def _logprobs(self, tokens: tuple[Scored, ...]) -> Json | None:
        asked = self._envelope.logprobs
        return None if asked is None else chat_logprobs(tokens, asked)


class Completion:
    """`text_completion`, whole and in chunks. It keeps each choice's length, since offsets run over
    chunks.
    """

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._offsets = [0] * envelope.choices

    def opening(self, usage: Callable[[], Counts]) -> list[Json]:
        return []

    def chunk(self, event: Event, usage: Callable[[], Counts]) -> Json:
        if isinstance(event, End):
            reason = finish_reason(event.reason)
            choice: Json = {"index": event.choice, "text": "", "logprobs": None, "finish_reason": reason}
        else:
            logprobs = self._logprobs(event.logprobs, self._offsets[event.choice])
            self._offsets[event.choice] += sum(len(t.text) for t in event.logprobs)
            choice = {
                "index": event.choice,
                "text": event.text,
                "logprobs": logprobs,
                "finish_reason": None,
            }
        head = _head(self._envelope, "text_completion")
        return _with_usage({**head, "choices": [choice]}, self._envelope, usage)

    def usage_chunk(self, counts: Counts) -> Json:
        return {**_head(self._envelope, "text_completion"), "choices": [], "usage": usage_json(counts)}

    def answer(self, events: list[Event], counts: Counts) -> Json:
        choices = []
        for index, whole in enumerate(_collect(events, self._envelope.choices)):
            choices.append(
                {
                    "index": index,
                    "text": whole.text,
                    "logprobs": self._logprobs(tuple(whole.logprobs), 0),
                    "finish_reason": finish_reason(whole.reason),
                }
            )
        return {**_head(self._envelope, "text_completion"), "choices": choices, "usage": usage_json(counts)}

    def _logprobs(self, tokens: tuple[Scored, ...], offset: int) -> Json | None:
        asked = self._envelope.logprobs
        return None if asked is None else completion_logprobs(tokens, asked, offset)


def finish_reason(reason: FinishReason) -> str:
    """OpenAI knows `stop` and `length`; an abort that still has a reader was stopped."""
    return "length" if reason is FinishReason.LENGTH else "stop"


@dataclass(slots=True)
class _Whole:
    """One choice, put together."""

    texts: list[str] = field(default_factory=list)
    logprobs: list[Scored] = field(default_factory=list)
    reason: FinishReason = FinishReason.STOP

    @property
    def text(self) -> str:
        return "".join(self.texts)


def _collect(events: list[Event], choices: int) -> list[_Whole]:
    wholes = [_Whole() for _ in range(choices)]
    for event in events:
        whole = wholes[event.choice]
        if isinstance(event, End):
            whole.reason = event.reason
        else:
            whole.texts.append(event.text)
            whole.logprobs.extend(event.logprobs)
    return wholes


def _head(envelope: Envelope, kind: str) -> Json:
    return {
        "id": envelope.id,
        "object": kind,
        "created": envelope.created,
        "model": envelope.model,
        "system_fingerprint": envelope.fingerprint,
    }


def _with_usage(chunk: Json, envelope: Envelope, usage: Callable[[], Counts]) -> Json:
    """Every chunk but the last says `"usage": null`, or the running totals when the caller asked for them."""
    if envelope.include_usage:
        chunk["usage"] = usage_json(usage()) if envelope.continuous_usage else None
    elif envelope.continuous_usage:
        chunk["usage"] = usage_json(usage())
    return chunk
