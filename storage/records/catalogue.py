"""Tenants, keys, uploads, models, revisions and jobs as records. Owns no query and no rule.

`Failure` and `Build` are separate types, so that a record has either all facts of an outcome or none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from storage.errors import RevisionNotReady
from storage.records.kinds import JobEventKind, JobState, RevisionState, Scope, UploadState


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something ended badly; `code` is public and stable."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Tenant:
    id: str
    name: str
    spend_cap_nano_usd: int | None
    created_at: float


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as stored: never the secret, only its first characters (`prefix`) for display."""

    id: str
    tenant_id: str
    name: str
    prefix: str
    scopes: frozenset[Scope]
    spend_cap_nano_usd: int | None
    spent_nano_usd: int
    created_at: float
    revoked_at: float | None

    def allows(self, scope: Scope) -> bool:
        return Scope.ADMIN in self.scopes or scope in self.scopes


@dataclass(frozen=True, slots=True)
class FileSpec:
    """A file as the caller announces it. `name` is user text: it never becomes a blob key."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class UploadFile:
    """A file of an upload and its part plan.

    `reused_key` names the stored blob that has these bytes already.
    """

    id: str
    upload_id: str
    name: str
    size_bytes: int
    sha256: str
    part_size_bytes: int
    part_count: int
    reused_key: str | None

    @property
    def needs_bytes(self) -> bool:
        return self.reused_key is None


@dataclass(frozen=True, slots=True)
class Part:
    """A received part; numbers start at 1."""

    file_id: str
    number: int
    size_bytes: int
    sha256: str
    received_at: float


@dataclass(frozen=True, slots=True)
class Upload:
    """`revision_id` and `job_id` are set by complete, in the transaction that makes both rows."""

    id: str
    tenant_id: str
    model_name: str
    state: UploadState
    files: tuple[UploadFile, ...]
    options: Mapping[str, Any]
    failure: Failure | None
    revision_id: str | None
    job_id: str | None
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """Bytes a tenant has stored once, whatever they are called."""

    sha256: str
    size_bytes: int
    blob_key: str


@dataclass(frozen=True, slots=True)
class Model:
    id: str
    tenant_id: str
    name: str
    created_at: float


@dataclass(frozen=True, slots=True)
class RevisionFile:
    name: str
    size_bytes: int
    sha256: str
    blob_key: str


@dataclass(frozen=True, slots=True)
class Build:
    """What a compile left: prefixes are directories of the blob store, `info` goes to the API as it is."""

    build_key: str
    artifact_prefix: str
    tokenizer_prefix: str
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Revision:
    """One immutable checkpoint + options under a model. `number` counts from 1 within the model."""

    id: str
    tenant_id: str
    model_id: str
    number: int
    state: RevisionState
    files: tuple[RevisionFile, ...]
    options: Mapping[str, Any]
    failure: Failure | None
    build: Build | None
    created_at: float
    ready_at: float | None

    def require_build(self) -> Build:
        """Raises: RevisionNotReady: it has not been compiled (yet)."""
        if self.build is None:
            raise RevisionNotReady(self.id, self.state)
        return self.build


@dataclass(frozen=True, slots=True)
class Job:
    """One compile, with attempts. `token` is the fence: it rises with each claim, loss and cancel."""

    id: str
    tenant_id: str
    model_id: str
    model_name: str
    revision_id: str
    upload_id: str | None
    state: JobState
    options: Mapping[str, Any]
    attempts: int
    losses: int
    token: int
    worker_id: str | None
    lease_expires_at: float | None
    stage: str | None
    fraction: float
    peak_rss_bytes: int | None
    failure: Failure | None
    created_at: float
    started_at: float | None
    finished_at: float | None


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker's right to a job. Every write of the attempt carries `token`."""

    job: Job
    token: int
    attempt: int
    lease_expires_at: float


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One line of a job's append-only log; `seq` counts from 1 within the job."""

    job_id: str
    seq: int
    attempt: int
    kind: JobEventKind
    body: Mapping[str, Any]
    at: float
