"""Stored bytes that an upload need not send again: only those that still are what they were; others heal."""

from __future__ import annotations

import time
from collections.abc import Sequence

import structlog

from api.services import Services
from storage import uploads
from storage.blobs import BlobStore, StoredBytes, broken, file_key
from storage.db import Connection
from storage.records import FileSpec, Upload, UploadFile

log = structlog.get_logger()

_CHECK_S = 30.0
"""A client waits a minute for the answer. What is not read by then is asked for once more."""


async def damaged_digests(given: Services, tenant_id: str, specs: Sequence[FileSpec]) -> frozenset[str]:
    """Digests of announced files whose stored bytes can't be trusted any more. Reads the stored bytes."""
    stored = await given.store.read(_stored, tenant_id, tuple(spec.sha256 for spec in specs))
    until = time.monotonic() + _CHECK_S
    lost = await given.files.run(broken, given.files.blobs, stored, lambda: time.monotonic() > until)
    if lost:
        log.warning("stored_bytes_distrusted", tenant_id=tenant_id, keys=[blob.key for blob in lost])
    return frozenset(blob.sha256 for blob in lost)


async def mend(given: Services, upload: Upload) -> None:
    """Where the tenant's stored copy of a file that was just joined is damaged, put the good bytes there."""
    for file in upload.files:
        if not file.needs_bytes:
            continue
        stored = await given.store.read(_stored, upload.tenant_id, (file.sha256,))
        for blob in await given.files.run(broken, given.files.blobs, stored):
            await given.files.run(_replace, given.files.blobs, blob, upload.id, file)
            log.warning("stored_bytes_mended", tenant_id=upload.tenant_id, key=blob.key)


def _stored(conn: Connection, tenant_id: str, digests: tuple[str, ...]) -> tuple[StoredBytes, ...]:
    found = (uploads.find_blob_by_sha256(conn, tenant_id, digest) for digest in dict.fromkeys(digests))
    return tuple(StoredBytes(b.blob_key, b.size_bytes, b.sha256) for b in found if b is not None)


def _replace(blobs: BlobStore, blob: StoredBytes, upload_id: str, file: UploadFile) -> None:
    joined = file_key(upload_id, file.id)
    if joined != blob.key:
        blobs.compose(blob.key, [joined], expected_sha256=blob.sha256, expected_size=blob.size_bytes)
