"""The protocol between gateway, scheduler and replica: token ids in, frames with cumulative counts out.

HTTP over a Unix socket; every call carries `SECRET_HEADER`. `POST /generate` takes a `GenerateRequest` and
answers NDJSON: `Started`, any number of `Delta`, one `Finished` a sequence, then `Ended` or `Failed` as
the last
line. `GET /stats` answers `ReplicaStats`; `POST /stats/ack` takes `{"request_ids": [...]}` and forgets
those ended
requests; `POST /drain` stops admission. Plain dataclasses: a replica must start without pydantic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

SECRET_HEADER = "x-candela-secret"


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


class ReplicaState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to pick a token; `temperature` below 1e-5 is greedy. `top_k` of 0 is off."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One API call's work for a replica. `max_tokens` is already clamped to the context that is left.

    `stop_ids` holds every end-of-sequence id of the revision plus the caller's; with `ignore_eos` the gateway
    leaves the revision's ids out. `logprobs` asks for that many alternatives a token (0: the chosen one
    only).
    `echo` with `logprobs` scores the prompt: before its first token each sequence sends one `Delta`
    without text,
    whose `ids` are the prompt, `completion_tokens` 0 and `logprobs` those of the ids after the first.
    """

    request_id: str
    tenant_id: str
    prompt_ids: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    n: int = 1
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    logprobs: int | None = None
    echo: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str | bytes) -> GenerateRequest:
        raw: dict[str, Any] = json.loads(text)
        sampling = dict(raw.pop("sampling"))
        sampling["logit_bias"] = tuple((int(i), float(b)) for i, b in sampling["logit_bias"])
        for name in ("prompt_ids", "stop", "stop_ids"):
            raw[name] = tuple(raw[name])
        return GenerateRequest(sampling=Sampling(**sampling), **raw)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token, its natural-log probability, and the most likely alternatives (id, logprob)."""

    id: int
    text: str
    logprob: float
    top: tuple[tuple[int, str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Started:
    """The request is admitted: `prompt_tokens` counted once, `cached_tokens` of them from the
    prefix cache.
    """

    prompt_tokens: int
    cached_tokens: int = 0
    queue_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Delta:
    """New text of sequence `index`; `completion_tokens` is that sequence's total so far (ids may
    have no text yet).
    """

    index: int
    text: str
    ids: tuple[int, ...]
    completion_tokens: int
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    index: int
    reason: FinishReason
    completion_tokens: int
    stop_match: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """Last line of a good stream: totals over all sequences."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """Last line of a bad stream. `retryable` is true when nothing was generated and another replica
    may serve it.
    """

    code: str
    message: str
    retryable: bool = False


Frame = Started | Delta | Finished | Ended | Failed
_TAGS: Mapping[str, type[Any]] = {
    "started": Started,
    "delta": Delta,
    "finished": Finished,
    "ended": Ended,
    "failed": Failed,
}
_NAMES = {cls: tag for tag, cls in _TAGS.items()}
_FIELDS = {cls: tuple(f.name for f in fields(cls)) for cls in _NAMES}
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, default=asdict).encode


def encode_frame(frame: Frame) -> bytes:
    """One NDJSON line, newline included. Costs a few microseconds: a replica sends one a token."""
    body = {name: getattr(frame, name) for name in _FIELDS[type(frame)]}
    return _encode({"t": _NAMES[type(frame)], **body}).encode() + b"\n"


def decode_frame(line: bytes | str) -> Frame:
    """Raises: `ValueError` when the line is not a frame."""
    raw: dict[str, Any] = json.loads(line)
    cls = _TAGS.get(raw.pop("t", ""))
    if cls is None:
        raise ValueError(f"not a frame: {line!r:.120}")
    if cls is Delta:
        raw["ids"] = tuple(raw["ids"])
        raw["logprobs"] = tuple(_logprob(x) for x in raw["logprobs"])
    if cls is Finished:
        raw["reason"] = FinishReason(raw["reason"])
    frame: Frame = cls(**raw)
    return frame


def _logprob(raw: dict[str, Any]) -> TokenLogprob:
    top = tuple((int(i), str(s), float(p)) for i, s, p in raw["top"])
    return TokenLogprob(id=raw["id"], text=raw["text"], logprob=raw["logprob"], top=top)


@dataclass(frozen=True, slots=True)
class StartFailed:
    """What a replica writes to its ready pipe when it can name why it will never be ready."""

    code: str
    message: str

    def to_json(self) -> str:
        return json.dumps({"start_failed": asdict(self)}, separators=(",", ":"))


def decode_ready(line: str | bytes) -> ReplicaStats | StartFailed:
    """What a ready pipe held. Raises: `ValueError`, `TypeError`, `KeyError`, `AttributeError`: neither."""
    raw: dict[str, Any] = json.loads(line)
    if "start_failed" in raw:
        return StartFailed(**raw["start_failed"])
    return ReplicaStats.from_json(line)


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """What a replica has generated for one request so far; the ground truth when a gateway dies."""

    request_id: str
    tenant_id: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaStats:
    """A replica's answer to the scheduler's poll. `idle_s` counts from the end of the last request
    (or from ready).
    """

    replica_id: str
    state: ReplicaState
    running: int
    waiting: int
    max_sequences: int
    kv_blocks_total: int
    kv_blocks_used: int
    idle_s: float
    steps: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    aborts: int = 0
    open: tuple[RequestCounts, ...] = ()
    ended: tuple[RequestCounts, ...] = ()
    phases_s: tuple[tuple[str, float], ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str | bytes) -> ReplicaStats:
        raw: dict[str, Any] = json.loads(text)
        raw["state"] = ReplicaState(raw["state"])
        for name in ("open", "ended"):
            raw[name] = tuple(RequestCounts(**x) for x in raw[name])
        raw["phases_s"] = tuple((str(k), float(v)) for k, v in raw["phases_s"])
        return ReplicaStats(**raw)
