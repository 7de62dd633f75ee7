"""Deployments, replicas, requests and money as records. Owns no query and no rule."""

from __future__ import annotations

from dataclasses import dataclass

from common.wire import ReplicaState
from storage.records.catalogue import Failure
from storage.records.kinds import DeploymentState, Meter, RequestStatus, ReservationState


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """How far and how eagerly a deployment scales.

    `idle_timeout_s` counts from the end of the last request.
    """

    min_replicas: int = 0
    max_replicas: int = 1
    idle_timeout_s: float = 60.0
    target_in_flight: int = 16


SERVED_BEFORE = "replica_failed"
"""A deployment's failure has this code when its replica had been ready; other codes are of starts."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """A revision made reachable. `kv_ceiling_tokens` is what each replica allocates, exactly."""

    id: str
    tenant_id: str
    name: str
    model_id: str
    model_name: str
    revision_id: str
    state: DeploymentState
    policy: ScalingPolicy
    kv_ceiling_tokens: int
    failure: Failure | None
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class Replica:
    """One serving process. `metered_until` is where its next bill of replica-seconds begins."""

    id: str
    tenant_id: str
    deployment_id: str
    revision_id: str
    state: ReplicaState
    pid: int | None
    socket_path: str | None
    reason: str | None
    created_at: float
    ready_at: float | None
    gone_at: float | None
    metered_until: float | None


@dataclass(frozen=True, slots=True)
class ReplicaChange:
    """A replica entered `state` at `at`; the rows of one replica, in order, are its life."""

    replica_id: str
    deployment_id: str
    state: ReplicaState
    reason: str | None
    at: float


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens of one request; `prompt_tokens` includes the `cached_tokens`, as in a response's `usage`."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One API request. Holds counts and times, never a prompt or an answer."""

    id: str
    tenant_id: str
    api_key_id: str | None
    client_request_id: str | None
    deployment_id: str | None
    model: str
    endpoint: str
    is_stream: bool
    status: RequestStatus
    http_status: int | None
    error_code: str | None
    replica_id: str | None
    counts: TokenCounts
    created_at: float
    first_token_at: float | None
    finished_at: float | None


@dataclass(frozen=True, slots=True)
class UsageEvent:
    """One billed fact.

    `price_version` was fixed when the request started; `model` is the deployment's name.
    """

    tenant_id: str
    request_id: str
    meter: Meter
    quantity: int
    price_version: str
    model: str
    occurred_at: float
    deployment_id: str | None = None
    api_key_id: str | None = None
    attempt_epoch: int = 0


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """An event as recorded: priced, numbered within the tenant, chained to the row before it."""

    sequence: int
    event_id: str
    event: UsageEvent
    amount_nano_usd: int
    recorded_at: float
    prev_hash: str
    hash: str


@dataclass(frozen=True, slots=True)
class Reservation:
    """Money set aside for a running request, and what it is known to have used so far."""

    request_id: str
    tenant_id: str
    api_key_id: str | None
    deployment_id: str | None
    model: str
    replica_id: str | None
    state: ReservationState
    price_version: str
    attempt_epoch: int
    max_cost_nano_usd: int
    counts: TokenCounts
    created_at: float
    lease_expires_at: float
