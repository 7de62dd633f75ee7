"""What calls give back: frozen values, read from JSON here. Times: Unix seconds; money: nano-USD."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]
TERMINAL_JOB_STATES = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an upload or a job ended badly."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class UploadPart:
    """A run of one file's bytes that the platform lacks, and the signed address it is PUT to."""

    number: int
    offset: int
    size_bytes: int
    url: str


@dataclass(frozen=True, slots=True)
class UploadFile:
    """`missing_parts` may be a first portion only; looking at the upload again shows the next."""

    id: str
    name: str
    size_bytes: int
    sha256: str
    needs_bytes: bool
    received_bytes: int
    missing_parts: tuple[UploadPart, ...]


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload's plan and state; `revision_id` and `job_id` are known once it was completed."""

    id: str
    state: str
    model: str
    files: tuple[UploadFile, ...]
    revision_id: str | None
    job_id: str | None
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Revision:
    """One immutable checkpoint under a model's name; `build_key` is known once it is compiled."""

    id: str
    number: int
    state: str
    size_bytes: int
    build_key: str | None
    failure: Failure | None
    created_at: float
    ready_at: float | None


@dataclass(frozen=True, slots=True)
class Model:
    id: str
    name: str
    created_at: float
    revisions: tuple[Revision, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """One compile. `fraction` runs from 0 to 1 within the whole job; `stage` says what is being done."""

    id: str
    model: str
    revision_id: str
    state: str
    attempts: int
    stage: str | None
    fraction: float
    failure: Failure | None
    created_at: float
    started_at: float | None
    finished_at: float | None

    @property
    def is_over(self) -> bool:
        return self.state in TERMINAL_JOB_STATES


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A line of a job's journal; `seq` rises by one, so a reader can resume after the last it saw."""

    seq: int
    attempt: int
    kind: str
    body: Json
    at: float


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    min_replicas: int = 0
    max_replicas: int = 1
    idle_timeout_s: float = 60.0
    target_in_flight: int = 16


@dataclass(frozen=True, slots=True)
class Replica:
    id: str
    state: str
    reason: str | None
    created_at: float
    ready_at: float | None


@dataclass(frozen=True, slots=True)
class Deployment:
    """`status` sums up the replicas: zero, starting, ready, draining, failed or deleting."""

    id: str
    name: str
    model: str
    revision_id: str
    state: str
    status: str
    policy: ScalingPolicy
    replicas: tuple[Replica, ...]
    failure: Failure | None
    created_at: float


@dataclass(frozen=True, slots=True)
class ApiKey:
    id: str
    name: str
    prefix: str
    scopes: tuple[str, ...]
    created_at: float
    revoked_at: float | None
    spent_nano_usd: int


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """A key just made. The platform keeps only a hash, so `secret` is shown this once."""

    key: ApiKey
    secret: str

    def __repr__(self) -> str:
        return f"NewApiKey(key={self.key!r}, secret=***)"


@dataclass(frozen=True, slots=True)
class UsageLine:
    """The priced sum of one meter over one day (UTC) and model."""

    day: str
    model: str
    meter: str
    quantity: int
    amount_nano_usd: int


@dataclass(frozen=True, slots=True)
class Usage:
    """`quantities` are totals by meter; `chain_is_intact` is None unless the ledger was verified."""

    start: str
    end: str
    lines: tuple[UsageLine, ...]
    quantities: Mapping[str, int]
    total_nano_usd: int
    chain_is_intact: bool | None


@dataclass(frozen=True, slots=True)
class TokenUsage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class ChatChunk:
    """A piece of a streamed answer; `usage` comes on the last chunk only."""

    text: str
    finish_reason: str | None
    usage: TokenUsage | None


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    id: str
    text: str
    finish_reason: str
    usage: TokenUsage


def upload_from(raw: Json) -> Upload:
    return Upload(
        id=str(raw["id"]),
        state=str(raw["state"]),
        model=str(raw["model"]),
        files=tuple(_file(f) for f in raw["files"]),
        revision_id=raw["revision_id"],
        job_id=raw["job_id"],
        failure=_failure(raw),
    )


def model_from(raw: Json) -> Model:
    revisions = tuple(_revision(r) for r in raw["revisions"])
    return Model(str(raw["id"]), str(raw["name"]), float(raw["created_at"]), revisions)


def job_from(raw: Json) -> Job:
    return Job(
        id=str(raw["id"]),
        model=str(raw["model"]),
        revision_id=str(raw["revision_id"]),
        state=str(raw["state"]),
        attempts=int(raw["attempts"]),
        stage=raw["stage"],
        fraction=float(raw["fraction"]),
        failure=_failure(raw),
        created_at=float(raw["created_at"]),
        started_at=raw["started_at"],
        finished_at=raw["finished_at"],
    )


def job_event_from(raw: Json) -> JobEvent:
    return JobEvent(
        int(raw["seq"]), int(raw["attempt"]), str(raw["kind"]), dict(raw["body"]), float(raw["at"])
    )


def deployment_from(raw: Json) -> Deployment:
    return Deployment(
        id=str(raw["id"]),
        name=str(raw["name"]),
        model=str(raw["model"]),
        revision_id=str(raw["revision_id"]),
        state=str(raw["state"]),
        status=str(raw["status"]),
        policy=_policy(raw["policy"]),
        replicas=tuple(_replica(r) for r in raw["replicas"]),
        failure=_failure(raw),
        created_at=float(raw["created_at"]),
    )


def key_from(raw: Json) -> ApiKey:
    return ApiKey(
        id=str(raw["id"]),
        name=str(raw["name"]),
        prefix=str(raw["prefix"]),
        scopes=tuple(str(s) for s in raw["scopes"]),
        created_at=float(raw["created_at"]),
        revoked_at=raw["revoked_at"],
        spent_nano_usd=int(raw["spent_nano_usd"]),
    )


def new_key_from(raw: Json) -> NewApiKey:
    return NewApiKey(key_from(raw), str(raw["secret"]))


def usage_from(raw: Json) -> Usage:
    return Usage(
        start=str(raw["start"]),
        end=str(raw["end"]),
        lines=tuple(_usage_line(line) for line in raw["lines"]),
        quantities={str(meter): int(quantity) for meter, quantity in raw["quantities"].items()},
        total_nano_usd=int(raw["total_nano_usd"]),
        chain_is_intact=raw["chain_is_intact"],
    )


def token_usage_from(raw: Json) -> TokenUsage:
    details = raw.get("prompt_tokens_details") or {}
    return TokenUsage(
        int(raw["prompt_tokens"]), int(raw["completion_tokens"]), int(details.get("cached_tokens") or 0)
    )


def chat_chunk_from(raw: Json) -> ChatChunk:
    """Read one streamed chunk; the usage chunk has no choices."""
    usage = token_usage_from(raw["usage"]) if raw.get("usage") else None
    choices = raw.get("choices")
    if not choices:
        return ChatChunk("", None, usage)
    return ChatChunk(choices[0]["delta"].get("content") or "", choices[0].get("finish_reason"), usage)


def chat_answer_from(raw: Json) -> ChatAnswer:
    choice = raw["choices"][0]
    return ChatAnswer(
        str(raw["id"]),
        choice["message"].get("content") or "",
        str(choice["finish_reason"]),
        token_usage_from(raw["usage"]),
    )


def _file(raw: Json) -> UploadFile:
    return UploadFile(
        id=str(raw["id"]),
        name=str(raw["name"]),
        size_bytes=int(raw["size_bytes"]),
        sha256=str(raw["sha256"]),
        needs_bytes=bool(raw["needs_bytes"]),
        received_bytes=sum(int(p["size_bytes"]) for p in raw["received_parts"]),
        missing_parts=tuple(
            UploadPart(int(p["number"]), int(p["offset"]), int(p["size_bytes"]), str(p["url"]))
            for p in raw["missing_parts"]
        ),
    )


def _revision(raw: Json) -> Revision:
    return Revision(
        id=str(raw["id"]),
        number=int(raw["number"]),
        state=str(raw["state"]),
        size_bytes=sum(int(f["size_bytes"]) for f in raw["files"]),
        build_key=raw["build_key"],
        failure=_failure(raw),
        created_at=float(raw["created_at"]),
        ready_at=raw["ready_at"],
    )


def _policy(raw: Json) -> ScalingPolicy:
    return ScalingPolicy(
        min_replicas=int(raw["min_replicas"]),
        max_replicas=int(raw["max_replicas"]),
        idle_timeout_s=float(raw["idle_timeout_s"]),
        target_in_flight=int(raw["target_in_flight"]),
    )


def _replica(raw: Json) -> Replica:
    return Replica(
        str(raw["id"]), str(raw["state"]), raw["reason"], float(raw["created_at"]), raw["ready_at"]
    )


def _usage_line(raw: Json) -> UsageLine:
    return UsageLine(
        str(raw["day"]),
        str(raw["model"]),
        str(raw["meter"]),
        int(raw["quantity"]),
        int(raw["amount_nano_usd"]),
    )


def _failure(raw: Json) -> Failure | None:
    failure = raw["failure"]
    return Failure(str(failure["code"]), str(failure["message"])) if failure else None
