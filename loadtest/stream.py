"""One streamed chat answer as its client hears it: what came, when, and whether it was right. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

_REFUSALS = (429, 503)


class Kind(StrEnum):
    """`cut`: the client left by itself. `refused`: told to come back later, which is no failure."""

    DONE = "done"
    CUT = "cut"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(slots=True)
class Heard:
    """What a client has heard of one answer. `told` is the server's own count, from the usage chunk."""

    received: int = 0
    told: int | None = None
    prompt_tokens: int | None = None
    has_end: bool = False
    error: str | None = None
    token_times_s: list[float] = field(default_factory=list)
    _rest: bytes = b""

    def feed(self, data: bytes, now_s: float) -> None:
        """Take in bytes of the event stream that arrived at `now_s`."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), now_s)

    def _event(self, data: bytes, now_s: float) -> None:
        if data == b"[DONE]":
            self.has_end = True
            return
        chunk: dict[str, Any] = json.loads(data)
        if "error" in chunk:
            self.error = str(chunk["error"].get("code") or chunk["error"].get("message"))
        usage = chunk.get("usage")
        if usage:
            self.told, self.prompt_tokens = usage["completion_tokens"], usage["prompt_tokens"]
        count = sum(_tokens(choice) for choice in chunk.get("choices", ()))
        if count:
            self.received += count
            self.token_times_s.append(now_s)


@dataclass(frozen=True, slots=True)
class Verdict:
    kind: Kind
    reason: str = ""


def judge(status: int, heard: Heard, is_cut: bool) -> Verdict:
    """Whether the answer is one: status 200, no error, a usage chunk that counts what came, and `[DONE]`."""
    if status in _REFUSALS:
        return Verdict(Kind.REFUSED, str(status))
    if status != 200:
        return Verdict(Kind.FAILED, f"status {status}")
    if is_cut:
        return Verdict(Kind.CUT)
    if heard.error is not None:
        return Verdict(Kind.FAILED, f"error frame: {heard.error}")
    if heard.told is None:
        return Verdict(Kind.FAILED, "no usage chunk")
    if heard.told != heard.received:
        return Verdict(Kind.FAILED, f"usage says {heard.told} tokens, {heard.received} came")
    return Verdict(Kind.DONE) if heard.has_end else Verdict(Kind.FAILED, "no [DONE]")


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds since the request was sent. TPOT needs a second token after the first."""

    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float


def times(heard: Heard, sent_at_s: float, ended_at_s: float) -> Times:
    """TTFT, the mean time per later token, and the whole."""
    e2e_s = ended_at_s - sent_at_s
    if not heard.token_times_s:
        return Times(None, None, e2e_s)
    first, last = heard.token_times_s[0], heard.token_times_s[-1]
    later = heard.received - 1
    return Times(first - sent_at_s, (last - first) / later if later > 0 and last > first else None, e2e_s)


def _tokens(choice: dict[str, Any]) -> int:
    """Tokens of a chunk: with log-probabilities asked for, each has an entry, even one without text yet."""
    logprobs = choice.get("logprobs") or {}
    return len(logprobs.get("content") or ())
