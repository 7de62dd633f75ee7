"""`/api/v1/uploads`: announce a checkpoint, send its parts to signed URLs, complete it into a compile job.

With the disk store the gateway serves the part URLs itself; the protocol is the one that S3 speaks.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import structlog
from fastapi import Query, Request

from api import routing
from api.auth import Admin, Reader
from api.manage import reuse, show, triage
from api.manage.parts import receive_part
from api.manage.schema import MissingPart, NewUpload, Page, PartBody, UploadBody
from api.services import Given, Services
from common.errors import ChecksumMismatch
from storage import uploads
from storage.blobs import BlobStore, file_key, part_key, signed_query, verify
from storage.db import Connection
from storage.errors import BlobNotFound, IllegalTransition, UploadIncomplete
from storage.parts import DEFAULT_PART_BYTES, PartPlan
from storage.records import Part, Scope, Upload, UploadFile, UploadState

router = routing.router()
log = structlog.get_logger()

_MOST_PARTS_SHOWN = 1000


@router.post("/api/v1/uploads", response_model=UploadBody, status_code=201, tags=["uploads"])
async def create_upload(body: NewUpload, request: Request, given: Given, who: Admin) -> UploadBody:
    """Announce a checkpoint's files. What is wrong with them is all listed in `error.problems`, with a 400.

    A file whose bytes this tenant has stored before, undamaged, needs no parts.
    """
    specs = await asyncio.to_thread(triage.judge, body)
    damaged = await reuse.damaged_digests(given, who.tenant_id, specs)
    made = await given.store.write(
        uploads.create_upload,
        who.tenant_id,
        body.model,
        specs,
        body.options,
        given.clock(),
        part_size_bytes=body.part_size_bytes or DEFAULT_PART_BYTES,
        damaged=damaged,
    )
    return await _shown(given, request, made)


@router.get("/api/v1/uploads", response_model=Page[UploadBody], tags=["uploads"])
async def list_uploads(
    given: Given, who: Reader, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> Page[UploadBody]:
    """Newest first, without parts."""
    found = await given.store.read(uploads.list_uploads, who.tenant_id, limit)
    return Page[UploadBody](data=[show.upload(u) for u in found])


@router.get("/api/v1/uploads/{upload_id}", response_model=UploadBody, tags=["uploads"])
async def get_upload(upload_id: str, request: Request, given: Given, who: Reader) -> UploadBody:
    """An upload with its received parts and fresh URLs for those that are missing: all that a resume
    needs.
    """
    found = await given.store.read(uploads.get_upload, who.tenant_id, upload_id)
    return await _shown(given, request, found, may_write=who.key.allows(Scope.ADMIN))


@router.put(
    "/api/v1/uploads/{upload_id}/files/{file_id}/parts/{number}",
    response_model=PartBody,
    tags=["uploads"],
    openapi_extra={"requestBody": {"required": True, "content": {"application/octet-stream": {}}}},
)
async def put_part(
    upload_id: str,
    file_id: str,
    number: int,
    request: Request,
    given: Given,
    expires: Annotated[int, Query()],
    signature: Annotated[str, Query()],
) -> PartBody:
    """Receive a part at its signed URL. `x-candela-sha256` (hex), when sent, must match: 400
    `checksum_mismatch`.

    The same bytes again change nothing.
    """
    secret = given.settings.secret_key.get_secret_value()
    verify(part_key(upload_id, file_id, number), "PUT", expires, signature, secret, given.clock())
    return await receive_part(given, upload_id, file_id, number, request)


@router.post("/api/v1/uploads/{upload_id}/complete", response_model=UploadBody, tags=["uploads"])
async def complete_upload(upload_id: str, request: Request, given: Given, who: Admin) -> UploadBody:
    """Check every file's digest and queue the compile. Completing again returns the first result."""
    upload = await given.store.read(_ready_to_join, who.tenant_id, upload_id)
    if upload.revision_id is None:
        await _join_all(given, upload)
        await reuse.mend(given, upload)
    _, job = await given.store.write(uploads.complete_upload, who.tenant_id, upload_id, given.clock())
    await _enqueue(given, job.id)
    await given.files.delete(await given.store.read(uploads.leftover_keys, who.tenant_id, upload_id))
    return show.upload(await given.store.read(uploads.get_upload, who.tenant_id, upload_id))


@router.delete("/api/v1/uploads/{upload_id}", response_model=UploadBody, tags=["uploads"])
async def abort_upload(upload_id: str, given: Given, who: Admin) -> UploadBody:
    """Give up an upload that was not completed; its bytes are deleted."""
    done = await given.store.write(uploads.abort_upload, who.tenant_id, upload_id, given.clock())
    await given.files.delete(await given.store.read(uploads.leftover_keys, who.tenant_id, upload_id))
    return show.upload(done)


def _ready_to_join(conn: Connection, tenant_id: str, upload_id: str) -> Upload:
    """Raises: UploadNotFound, UploadIncomplete, IllegalTransition: it failed or was aborted."""
    upload = uploads.get_upload(conn, tenant_id, upload_id)
    if upload.state in (UploadState.FAILED, UploadState.ABORTED):
        raise IllegalTransition("upload", upload_id, upload.state, UploadState.VERIFYING)
    missing = uploads.missing_parts(conn, tenant_id, upload_id)
    if upload.revision_id is None and missing:
        raise UploadIncomplete(tuple((file.name, number) for file, number in missing[:100]), len(missing))
    return upload


async def _join_all(given: Services, upload: Upload) -> None:
    """Join each file's parts and check its digest. Safe to repeat: the same bytes replace themselves."""
    try:
        for file in upload.files:
            if file.needs_bytes:
                await given.files.run(_join, given.files.blobs, upload.id, file)
    except BlobNotFound:  # a concurrent complete has joined and deleted the parts, or they are really gone
        now = await given.store.read(uploads.get_upload, upload.tenant_id, upload.id)
        if now.revision_id is None:
            raise


def _join(blobs: BlobStore, upload_id: str, file: UploadFile) -> None:
    keys = [part_key(upload_id, file.id, number) for number in range(1, file.part_count + 1)]
    try:
        blobs.compose(
            file_key(upload_id, file.id), keys, expected_sha256=file.sha256, expected_size=file.size_bytes
        )
    except ChecksumMismatch as error:
        text = f"{file.name!r} does not have the announced sha256; send its parts again"
        raise ChecksumMismatch(text, param=file.name) from error


async def _enqueue(given: Services, job_id: str) -> None:
    """Tell the workers. The job's row is the truth, so a broker that is away only delays it."""
    try:
        await given.files.run(given.enqueue, job_id)
    except Exception:
        log.warning("enqueue_failed", job_id=job_id, exc_info=True)


async def _shown(given: Services, request: Request, upload: Upload, *, may_write: bool = True) -> UploadBody:
    parts, missing = await given.store.read(_progress, upload)
    if not may_write or upload.state not in (UploadState.CREATED, UploadState.UPLOADING):
        return show.upload(upload, parts)
    expires_at = int(given.clock()) + given.settings.part_url_life_s
    base = (given.settings.public_url or str(request.base_url)).rstrip("/")
    secret = given.settings.secret_key.get_secret_value()
    sendable = [
        (file.id, _missing_part(base, upload.id, file, number, expires_at, secret))
        for file, number in missing[:_MOST_PARTS_SHOWN]
    ]
    return show.upload(upload, parts, sendable, expires_at)


def _progress(
    conn: Connection, upload: Upload
) -> tuple[tuple[Part, ...], tuple[tuple[UploadFile, int], ...]]:
    return (
        uploads.parts_of(conn, upload.tenant_id, upload.id),
        uploads.missing_parts(conn, upload.tenant_id, upload.id),
    )


def _missing_part(
    base: str, upload_id: str, file: UploadFile, number: int, expires_at: int, secret: str
) -> MissingPart:
    plan = PartPlan(file.size_bytes, file.part_size_bytes, file.part_count)
    query = signed_query(part_key(upload_id, file.id, number), "PUT", expires_at, secret)
    return MissingPart(
        number=number,
        offset=file.part_size_bytes * (number - 1),
        size_bytes=plan.length_of(number),
        url=f"{base}/api/v1/uploads/{upload_id}/files/{file.id}/parts/{number}?{query}",
    )
