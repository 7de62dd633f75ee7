"""Bodies of the management API. Times are Unix seconds; money is nano-USD in a string, since a JSON number
may pass through a float on its way.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

from storage.records import JobEventKind, Scope

NanoUsd = Annotated[int, PlainSerializer(str, return_type=str)]
"""An exact integer amount; a string in JSON."""

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]


class Ask(BaseModel):
    """A request body: strict types, and a misspelt field is an error rather than a silent default."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())


class Tell(BaseModel):
    model_config = ConfigDict(from_attributes=True, protected_namespaces=())


T = TypeVar("T")


class Page(Tell, Generic[T]):
    """A list, newest first unless said otherwise."""

    object: Literal["list"] = "list"
    data: list[T]


class NewFile(Ask):
    name: str
    size_bytes: int
    sha256: Annotated[str, Field(description="64 lower-case hex digits")]


class NewUpload(Ask):
    """`config` is the checkpoint's config.json. `weight_headers` holds, by file name, what precedes the
    weights: the JSON header of a safetensors file, the parsed shard index, or the first bytes of a GGUF file
    in base64. With them what is wrong with a checkpoint is said before its bytes are sent.
    """

    model: Name
    files: Annotated[list[NewFile], Field(max_length=10_000)]
    config: dict[str, Any] | None = None
    weight_headers: dict[str, dict[str, Any] | str] = {}
    options: dict[str, Any] = {}
    part_size_bytes: int | None = None


class FailureBody(Tell):
    code: str
    message: str


class PartBody(Tell):
    number: int
    size_bytes: int
    sha256: str


class MissingPart(Tell):
    """PUT these bytes of the file to `url`, before `url_expires_at`."""

    number: int
    offset: int
    size_bytes: int
    url: str


class UploadFileBody(Tell):
    id: str
    name: str
    size_bytes: int
    sha256: str
    part_size_bytes: int
    part_count: int
    needs_bytes: bool
    received_parts: list[PartBody] = []
    missing_parts: list[MissingPart] = []


class UploadBody(Tell):
    """`missing_parts` lists at most a thousand parts; GET the upload again for the rest or for fresh URLs."""

    object: Literal["upload"] = "upload"
    id: str
    model: str
    state: str
    files: list[UploadFileBody]
    options: dict[str, Any]
    url_expires_at: int | None = None
    failure: FailureBody | None
    revision_id: str | None
    job_id: str | None
    created_at: float
    updated_at: float


class RevisionFileBody(Tell):
    name: str
    size_bytes: int
    sha256: str


class RevisionBody(Tell):
    object: Literal["revision"] = "revision"
    id: str
    model: str
    number: int
    state: str
    files: list[RevisionFileBody]
    options: dict[str, Any]
    failure: FailureBody | None
    build_key: str | None
    info: dict[str, Any]
    created_at: float
    ready_at: float | None


class ModelBody(Tell):
    object: Literal["model"] = "model"
    id: str
    name: str
    created_at: float
    revisions: list[RevisionBody]


class JobBody(Tell):
    object: Literal["job"] = "job"
    id: str
    model: str
    revision_id: str
    upload_id: str | None
    state: str
    stage: str | None
    fraction: float
    attempts: int
    peak_rss_bytes: int | None
    failure: FailureBody | None
    created_at: float
    started_at: float | None
    finished_at: float | None


class JobEventBody(Tell):
    """`progress` bodies hold `stage`, `fraction` and `message`; `state` bodies hold `state`."""

    seq: int
    attempt: int
    kind: JobEventKind
    body: dict[str, Any]
    at: float


class Policy(Ask):
    min_replicas: Annotated[int, Field(ge=0, le=1000)] = 0
    max_replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    idle_timeout_s: Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)] = 60.0
    target_in_flight: Annotated[int, Field(ge=1, le=10_000)] = 16


class NewDeployment(Ask):
    """`revision_id` defaults to the model's latest ready revision."""

    name: Name
    model: Name
    revision_id: str | None = None
    policy: Policy = Policy()
    kv_ceiling_tokens: Annotated[int, Field(ge=16, le=1 << 40)] | None = None


class PolicyChange(Ask):
    """Fields left out keep their values."""

    min_replicas: Annotated[int, Field(ge=0, le=1000)] | None = None
    max_replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    idle_timeout_s: Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)] | None = None
    target_in_flight: Annotated[int, Field(ge=1, le=10_000)] | None = None


class DeploymentChange(Ask):
    policy: PolicyChange | None = None
    revision_id: str | None = None


class PolicyBody(Tell):
    min_replicas: int
    max_replicas: int
    idle_timeout_s: float
    target_in_flight: int


class ReplicaBody(Tell):
    id: str
    state: str
    reason: str | None
    created_at: float
    ready_at: float | None
    gone_at: float | None


class DeploymentBody(Tell):
    """`status` sums up the replicas: zero, starting, ready, draining, failed or deleting."""

    object: Literal["deployment"] = "deployment"
    id: str
    name: str
    model: str
    revision_id: str
    state: str
    status: str
    policy: PolicyBody
    kv_ceiling_tokens: int
    replicas: list[ReplicaBody]
    failure: FailureBody | None
    created_at: float
    updated_at: float


class ReplicaChangeBody(Tell):
    replica_id: str
    state: str
    reason: str | None
    at: float


class NewKey(Ask):
    """Without `scopes` a key may call models and look at things, and change nothing."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    scopes: list[Annotated[Scope, Field(strict=False)]] = []
    spend_cap_nano_usd: Annotated[str, Field(pattern=r"^\d{1,18}$")] | None = None


class KeyBody(Tell):
    object: Literal["key"] = "key"
    id: str
    name: str
    prefix: str
    scopes: list[str]
    spend_cap_nano_usd: NanoUsd | None
    spent_nano_usd: NanoUsd
    created_at: float
    revoked_at: float | None


class KeyWithSecret(KeyBody):
    """`secret` is shown here and never again."""

    secret: str


class UsageLine(Tell):
    """One day (UTC), model and meter."""

    day: str
    model: str
    meter: str
    quantity: int
    amount_nano_usd: NanoUsd


class UsageBody(Tell):
    object: Literal["usage"] = "usage"
    start: str
    end: str
    lines: list[UsageLine]
    quantities: dict[str, int]
    total_nano_usd: NanoUsd
    chain_is_intact: bool | None = None


class RequestBody(Tell):
    object: Literal["request"] = "request"
    id: str
    client_request_id: str | None
    model: str
    endpoint: str
    is_stream: bool
    status: str
    http_status: int | None
    error_code: str | None
    replica_id: str | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    created_at: float
    first_token_at: float | None
    finished_at: float | None
