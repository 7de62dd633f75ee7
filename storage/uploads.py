"""Uploads: a manifest of files, the parts received so far, and the transaction that turns them into a job.

The bytes are the blob store's. A file that the tenant has stored under the same sha256 needs no part.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common.errors import ChecksumMismatch, InvalidInput
from common.ids import Kind, new_id
from storage.blobs.names import file_key, part_key
from storage.errors import IllegalTransition, PartConflict, UploadIncomplete, UploadNotFound
from storage.jobs import create_job, load_job
from storage.models import ensure_model
from storage.parts import DEFAULT_PART_BYTES, PartPlan, check_files, plan_parts
from storage.records import (
    Failure,
    FileSpec,
    Job,
    Part,
    Revision,
    RevisionFile,
    StoredBlob,
    Upload,
    UploadFile,
    UploadState,
)
from storage.revisions import create_revision, load_revision
from storage.states import uploads_before
from storage.tables import blobs, upload_files, upload_parts, uploads
from storage.upload_rows import load_upload, select_uploads
from storage.write import insert_if_absent

__all__ = [
    "PartOutcome",
    "abort_upload",
    "complete_upload",
    "create_upload",
    "fail_upload",
    "find_blob_by_sha256",
    "get_upload",
    "leftover_keys",
    "list_uploads",
    "load_upload",
    "mark_verified",
    "missing_parts",
    "parts_of",
    "record_part",
]


class PartOutcome(StrEnum):
    STORED = "stored"
    UNCHANGED = "unchanged"
    REPLACED = "replaced"


def create_upload(
    conn: Connection,
    tenant_id: str,
    model_name: str,
    files: Sequence[FileSpec],
    options: Mapping[str, Any],
    now: float,
    *,
    part_size_bytes: int = DEFAULT_PART_BYTES,
    damaged: Collection[str] = (),
) -> Upload:
    """Plan the parts of each file. `options` are the compile's, kept as they are.

    Files that the tenant has stored need no bytes, unless their digest is one of `damaged`.
    Raises: UploadRefused: with every problem of the names, sizes and digests.
    """
    check_files(files, part_size_bytes)
    upload_id = new_id(Kind.UPLOAD)
    conn.execute(
        sa.insert(uploads).values(
            id=upload_id,
            tenant_id=tenant_id,
            model_name=model_name,
            state=UploadState.CREATED,
            options=dict(options),
            created_at=now,
            updated_at=now,
        )
    )
    rows = []
    for position, spec in enumerate(files):
        plan = plan_parts(spec.size_bytes, part_size_bytes)
        stored = find_blob_by_sha256(conn, tenant_id, spec.sha256)
        is_known = stored is not None and stored.size_bytes == spec.size_bytes and spec.sha256 not in damaged
        rows.append(
            {
                "id": f"{upload_id}_{position}",
                "tenant_id": tenant_id,
                "upload_id": upload_id,
                "position": position,
                "name": spec.name,
                "size_bytes": spec.size_bytes,
                "sha256": spec.sha256,
                "part_size_bytes": plan.part_size_bytes,
                "part_count": plan.part_count,
                "reused_key": stored.blob_key if stored is not None and is_known else None,
            }
        )
    conn.execute(sa.insert(upload_files), rows)
    return load_upload(conn, upload_id)


def get_upload(conn: Connection, tenant_id: str, upload_id: str) -> Upload:
    """Raises: UploadNotFound: also for another tenant's."""
    upload = load_upload(conn, upload_id)
    if upload.tenant_id != tenant_id:
        raise UploadNotFound(upload_id)
    return upload


def list_uploads(conn: Connection, tenant_id: str, limit: int = 100) -> tuple[Upload, ...]:
    """Newest first."""
    return select_uploads(conn, uploads.c.tenant_id == tenant_id, limit)


def find_blob_by_sha256(conn: Connection, tenant_id: str, sha256: str) -> StoredBlob | None:
    """The tenant's stored bytes with this digest; never another tenant's."""
    row = conn.execute(
        sa.select(blobs).where(blobs.c.tenant_id == tenant_id, blobs.c.sha256 == sha256)
    ).first()
    return None if row is None else StoredBlob(row.sha256, row.size_bytes, row.blob_key)


def record_part(
    conn: Connection,
    tenant_id: str,
    upload_id: str,
    file_id: str,
    number: int,
    size_bytes: int,
    sha256: str,
    now: float,
) -> PartOutcome:
    """Note a received part; make its bytes durable before this transaction commits.

    The same digest again changes nothing, at any time; another digest replaces the part before complete.
    Raises: UploadNotFound, InvalidInput: no such file or part, or a wrong size; PartConflict: other bytes
        after complete; IllegalTransition: the upload failed or was aborted.
    """
    upload = get_upload(conn, tenant_id, upload_id)
    file = _file_of(upload, file_id)
    _check_size(file, number, size_bytes)
    known = conn.execute(
        sa.select(upload_parts.c.sha256).where(
            upload_parts.c.file_id == file_id, upload_parts.c.number == number
        )
    ).scalar_one_or_none()
    if known == sha256:
        return PartOutcome.UNCHANGED
    _begin_uploading(conn, upload, file_id, number, now)
    row = {
        "tenant_id": tenant_id,
        "file_id": file_id,
        "number": number,
        "size_bytes": size_bytes,
        "sha256": sha256,
        "received_at": now,
    }
    if insert_if_absent(conn, upload_parts, row, [upload_parts.c.file_id, upload_parts.c.number]):
        return PartOutcome.STORED
    conn.execute(
        sa.update(upload_parts)
        .where(upload_parts.c.file_id == file_id, upload_parts.c.number == number)
        .values(size_bytes=size_bytes, sha256=sha256, received_at=now)
    )
    return PartOutcome.REPLACED


def parts_of(conn: Connection, tenant_id: str, upload_id: str) -> tuple[Part, ...]:
    """Every received part, by file and number: what a client needs to resume."""
    rows = conn.execute(
        sa.select(upload_parts)
        .join(upload_files, upload_files.c.id == upload_parts.c.file_id)
        .where(upload_files.c.tenant_id == tenant_id, upload_files.c.upload_id == upload_id)
        .order_by(upload_files.c.position, upload_parts.c.number)
    ).mappings()
    return tuple(
        Part(r["file_id"], r["number"], r["size_bytes"], r["sha256"], r["received_at"]) for r in rows
    )


def missing_parts(conn: Connection, tenant_id: str, upload_id: str) -> tuple[tuple[UploadFile, int], ...]:
    """Parts that are still to be sent, as (file, number)."""
    upload = get_upload(conn, tenant_id, upload_id)
    have = {(part.file_id, part.number) for part in parts_of(conn, tenant_id, upload_id)}
    return tuple(
        (file, number)
        for file in upload.files
        if file.needs_bytes
        for number in range(1, file.part_count + 1)
        if (file.id, number) not in have
    )


def complete_upload(conn: Connection, tenant_id: str, upload_id: str, now: float) -> tuple[Revision, Job]:
    """Make Upload(verifying), Revision(uploaded) and Job(queued) at once; a repeat returns the first result.

    The files' bytes must be composed and verified before (at `blobs.names.file_key`). Where another upload
    has stored the same bytes meanwhile, the revision points to those; `leftover_keys` then names the copies
    to delete.
    Raises: UploadNotFound, UploadIncomplete, IllegalTransition: it failed or was aborted.
    """
    upload = get_upload(conn, tenant_id, upload_id)
    if upload.revision_id is None:
        _require_all_parts(conn, upload)
    open_states = uploads_before(UploadState.VERIFYING)
    won = conn.execute(
        sa.update(uploads)
        .where(uploads.c.id == upload_id, uploads.c.state.in_(open_states))
        .values(state=UploadState.VERIFYING, updated_at=now)
    ).rowcount
    if won == 0:
        return _first_result(conn, upload_id)
    files = tuple(_store_once(conn, upload, file, now) for file in upload.files)
    model = ensure_model(conn, tenant_id, upload.model_name, now)
    revision = create_revision(conn, tenant_id, model.id, files, upload.options, now)
    job = create_job(conn, revision, model.name, upload_id, now)
    conn.execute(
        sa.update(uploads).where(uploads.c.id == upload_id).values(revision_id=revision.id, job_id=job.id)
    )
    return revision, job


def leftover_keys(conn: Connection, tenant_id: str, upload_id: str) -> tuple[str, ...]:
    """Blob keys that nothing refers to once the upload has ended or is completed: parts and spare copies."""
    upload = get_upload(conn, tenant_id, upload_id)
    keys = []
    for file in upload.files:
        if not file.needs_bytes:
            continue
        keys += [part_key(upload_id, file.id, number) for number in range(1, file.part_count + 1)]
        stored = find_blob_by_sha256(conn, tenant_id, file.sha256)
        if stored is None or stored.blob_key != file_key(upload_id, file.id):
            keys.append(file_key(upload_id, file.id))
    return tuple(keys)


def mark_verified(conn: Connection, upload_id: str, now: float) -> None:
    """Every digest matched and every file parsed: the upload is ready, whatever the compile does later."""
    conn.execute(
        sa.update(uploads)
        .where(uploads.c.id == upload_id, uploads.c.state.in_(uploads_before(UploadState.READY)))
        .values(state=UploadState.READY, updated_at=now)
    )


def fail_upload(conn: Connection, upload_id: str, failure: Failure, now: float) -> Upload:
    """End the upload badly; a no-op when it ended already."""
    return _end(conn, upload_id, UploadState.FAILED, failure, now)


def abort_upload(conn: Connection, tenant_id: str, upload_id: str, now: float) -> Upload:
    """Give up an upload before complete; a repeat is a no-op.

    Raises: UploadNotFound, IllegalTransition: it was completed (cancel its job instead) or failed.
    """
    upload = get_upload(conn, tenant_id, upload_id)
    if upload.revision_id is None:
        upload = _end(conn, upload_id, UploadState.ABORTED, Failure("aborted", "aborted by the caller"), now)
    if upload.state is not UploadState.ABORTED:
        raise IllegalTransition("upload", upload_id, upload.state, UploadState.ABORTED)
    return upload


def _file_of(upload: Upload, file_id: str) -> UploadFile:
    for file in upload.files:
        if file.id == file_id:
            return file
    raise InvalidInput(f"upload {upload.id} has no file {file_id!r}", code="file_not_found", param="file_id")


def _check_size(file: UploadFile, number: int, size_bytes: int) -> None:
    plan = PartPlan(file.size_bytes, file.part_size_bytes, file.part_count)
    if not 1 <= number <= plan.part_count:
        text = f"file {file.name!r} has parts 1 to {plan.part_count}, not {number}"
        raise InvalidInput(text, code="part_not_found", param="number")
    if size_bytes != plan.length_of(number):
        text = f"part {number} of {file.name!r} has {plan.length_of(number)} bytes, not {size_bytes}"
        raise ChecksumMismatch(text, code="part_size_mismatch")


def _begin_uploading(conn: Connection, upload: Upload, file_id: str, number: int, now: float) -> None:
    receiving = (UploadState.CREATED, UploadState.UPLOADING)
    is_open = conn.execute(
        sa.update(uploads)
        .where(uploads.c.id == upload.id, uploads.c.state.in_(receiving))
        .values(state=UploadState.UPLOADING, updated_at=now)
    ).rowcount
    if is_open:
        return
    state = load_upload(conn, upload.id).state
    if state in (UploadState.VERIFYING, UploadState.READY):
        raise PartConflict(file_id, number)
    raise IllegalTransition("upload", upload.id, state, UploadState.UPLOADING)


def _require_all_parts(conn: Connection, upload: Upload) -> None:
    missing = missing_parts(conn, upload.tenant_id, upload.id)
    if missing and upload.state not in (UploadState.FAILED, UploadState.ABORTED):
        raise UploadIncomplete(tuple((file.name, number) for file, number in missing[:100]), len(missing))


def _first_result(conn: Connection, upload_id: str) -> tuple[Revision, Job]:
    upload = load_upload(conn, upload_id)
    if upload.revision_id is None or upload.job_id is None:
        raise IllegalTransition("upload", upload_id, upload.state, UploadState.VERIFYING)
    return load_revision(conn, upload.revision_id), load_job(conn, upload.job_id)


def _store_once(conn: Connection, upload: Upload, file: UploadFile, now: float) -> RevisionFile:
    row = {
        "tenant_id": upload.tenant_id,
        "sha256": file.sha256,
        "size_bytes": file.size_bytes,
        "blob_key": file.reused_key or file_key(upload.id, file.id),
        "created_at": now,
    }
    insert_if_absent(conn, blobs, row, [blobs.c.tenant_id, blobs.c.sha256])
    stored = find_blob_by_sha256(conn, upload.tenant_id, file.sha256)
    assert stored is not None, "the row was just inserted or is there"
    return RevisionFile(file.name, file.size_bytes, file.sha256, stored.blob_key)


def _end(conn: Connection, upload_id: str, state: UploadState, failure: Failure, now: float) -> Upload:
    conn.execute(
        sa.update(uploads)
        .where(uploads.c.id == upload_id, uploads.c.state.in_(uploads_before(state)))
        .values(state=state, failure_code=failure.code, failure_message=failure.message, updated_at=now)
    )
    return load_upload(conn, upload_id)
