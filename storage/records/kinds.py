"""The closed sets of storage: states, scopes, meters."""

from __future__ import annotations

from enum import StrEnum


class Scope(StrEnum):
    """What a key may do: `admin` everything, `inference` call models, `read` look."""

    ADMIN = "admin"
    INFERENCE = "inference"
    READ = "read"


class UploadState(StrEnum):
    CREATED = "created"
    UPLOADING = "uploading"
    VERIFYING = "verifying"
    READY = "ready"
    FAILED = "failed"
    ABORTED = "aborted"


class RevisionState(StrEnum):
    UPLOADED = "uploaded"
    COMPILING = "compiling"
    READY = "ready"
    FAILED = "failed"


class JobState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class JobEventKind(StrEnum):
    """`state` events are written by storage at each transition, the others by the worker."""

    STATE = "state"
    PROGRESS = "progress"
    LOG = "log"


class DeploymentState(StrEnum):
    """`deleting` keeps the row until its replicas are gone; the name is free at once."""

    ACTIVE = "active"
    DELETING = "deleting"
    DELETED = "deleted"


class RequestStatus(StrEnum):
    """`cancelled`: the client left (499); what was generated is billed all the same."""

    OPEN = "open"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ReservationState(StrEnum):
    OPEN = "open"
    SETTLED = "settled"
    RELEASED = "released"


class Meter(StrEnum):
    """What is counted. `prompt_tokens` leaves out the `cached_tokens`; time meters count whole seconds."""

    PROMPT_TOKENS = "prompt_tokens"
    CACHED_TOKENS = "cached_tokens"
    COMPLETION_TOKENS = "completion_tokens"
    REPLICA_SECONDS = "replica_seconds"
    COMPILE_SECONDS = "compile_seconds"
