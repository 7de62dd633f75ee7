"""Records as bodies of the management API. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from api.manage.schema import (
    DeploymentBody,
    FailureBody,
    JobBody,
    JobEventBody,
    KeyBody,
    MissingPart,
    ModelBody,
    PartBody,
    PolicyBody,
    ReplicaBody,
    RequestBody,
    RevisionBody,
    RevisionFileBody,
    UploadBody,
    UploadFileBody,
)
from common.wire import ReplicaState
from storage.records import (
    ApiKey,
    Deployment,
    DeploymentState,
    Failure,
    Job,
    JobEvent,
    Model,
    Part,
    Replica,
    RequestRow,
    Revision,
    Upload,
)


def failure(found: Failure | None) -> FailureBody | None:
    return None if found is None else FailureBody(code=found.code, message=found.message)


def upload(
    found: Upload,
    parts: Sequence[Part] = (),
    missing: Sequence[tuple[str, MissingPart]] = (),
    url_expires_at: int | None = None,
) -> UploadBody:
    """`missing` pairs a file's id with a part that is still to be sent."""
    files = [
        UploadFileBody(
            id=file.id,
            name=file.name,
            size_bytes=file.size_bytes,
            sha256=file.sha256,
            part_size_bytes=file.part_size_bytes,
            part_count=file.part_count,
            needs_bytes=file.needs_bytes,
            received_parts=[
                PartBody(number=p.number, size_bytes=p.size_bytes, sha256=p.sha256)
                for p in parts
                if p.file_id == file.id
            ],
            missing_parts=[part for file_id, part in missing if file_id == file.id],
        )
        for file in found.files
    ]
    return UploadBody(
        id=found.id,
        model=found.model_name,
        state=found.state,
        files=files,
        options=dict(found.options),
        url_expires_at=url_expires_at,
        failure=failure(found.failure),
        revision_id=found.revision_id,
        job_id=found.job_id,
        created_at=found.created_at,
        updated_at=found.updated_at,
    )


def revision(found: Revision, model_name: str) -> RevisionBody:
    return RevisionBody(
        id=found.id,
        model=model_name,
        number=found.number,
        state=found.state,
        files=[RevisionFileBody.model_validate(file) for file in found.files],
        options=dict(found.options),
        failure=failure(found.failure),
        build_key=found.build.build_key if found.build else None,
        info=dict(found.build.info) if found.build else {},
        created_at=found.created_at,
        ready_at=found.ready_at,
    )


def model(found: Model, revisions: Iterable[Revision]) -> ModelBody:
    shown = [revision(r, found.name) for r in revisions]
    return ModelBody(id=found.id, name=found.name, created_at=found.created_at, revisions=shown)


def job(found: Job) -> JobBody:
    return JobBody(
        id=found.id,
        model=found.model_name,
        revision_id=found.revision_id,
        upload_id=found.upload_id,
        state=found.state,
        stage=found.stage,
        fraction=found.fraction,
        attempts=found.attempts,
        peak_rss_bytes=found.peak_rss_bytes,
        failure=failure(found.failure),
        created_at=found.created_at,
        started_at=found.started_at,
        finished_at=found.finished_at,
    )


def job_event(found: JobEvent) -> JobEventBody:
    return JobEventBody(
        seq=found.seq, attempt=found.attempt, kind=found.kind, body=dict(found.body), at=found.at
    )


def deployment(found: Deployment, replicas: Sequence[Replica]) -> DeploymentBody:
    return DeploymentBody(
        id=found.id,
        name=found.name,
        model=found.model_name,
        revision_id=found.revision_id,
        state=found.state,
        status=status(found, replicas),
        policy=PolicyBody.model_validate(found.policy),
        kv_ceiling_tokens=found.kv_ceiling_tokens,
        replicas=[ReplicaBody.model_validate(r) for r in replicas],
        failure=failure(found.failure),
        created_at=found.created_at,
        updated_at=found.updated_at,
    )


def status(found: Deployment, replicas: Sequence[Replica]) -> str:
    """One word for a deployment: what a person wants to know first."""
    states = {replica.state for replica in replicas}
    if found.state is not DeploymentState.ACTIVE:
        return found.state.value
    for state in (ReplicaState.READY, ReplicaState.STARTING, ReplicaState.DRAINING):
        if state in states:
            return state.value
    return "failed" if found.failure else "zero"


def key(found: ApiKey) -> KeyBody:
    return KeyBody(
        id=found.id,
        name=found.name,
        prefix=found.prefix,
        scopes=sorted(found.scopes),
        spend_cap_nano_usd=found.spend_cap_nano_usd,
        spent_nano_usd=found.spent_nano_usd,
        created_at=found.created_at,
        revoked_at=found.revoked_at,
    )


def request(found: RequestRow) -> RequestBody:
    return RequestBody(
        id=found.id,
        client_request_id=found.client_request_id,
        model=found.model,
        endpoint=found.endpoint,
        is_stream=found.is_stream,
        status=found.status,
        http_status=found.http_status,
        error_code=found.error_code,
        replica_id=found.replica_id,
        prompt_tokens=found.counts.prompt_tokens,
        cached_tokens=found.counts.cached_tokens,
        completion_tokens=found.counts.completion_tokens,
        created_at=found.created_at,
        first_token_at=found.first_token_at,
        finished_at=found.finished_at,
    )
