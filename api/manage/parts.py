"""Receiving one part: streamed to its blob, hashed on the way, noted when its bytes are durable."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator

from fastapi import Request

from api.manage.schema import PartBody
from api.services import Services
from common.errors import ChecksumMismatch, InvalidInput, TooLarge
from storage import uploads
from storage.blobs import BlobWriter, part_key
from storage.parts import PartPlan
from storage.records import Upload, UploadState

DIGEST_HEADER = "x-candela-sha256"
_BUFFER_BYTES = 1 << 20
_RECEIVING = (UploadState.CREATED, UploadState.UPLOADING)


async def receive_part(
    given: Services, upload_id: str, file_id: str, number: int, request: Request
) -> PartBody:
    """Raises: ChecksumMismatch, TooLarge, InvalidInput: no such part; PartConflict, IllegalTransition."""
    announced = _announced_digest(request)
    upload = await given.store.read(uploads.load_upload, upload_id)
    length = _length(upload, file_id, number)
    chunks = _bounded(request, min(length, given.settings.max_part_bytes))
    if upload.state in _RECEIVING:
        key = part_key(upload_id, file_id, number)
        writer = await given.files.run(
            given.files.blobs.writer, key, expected_sha256=announced, expected_size=length
        )
        digest = await _store(given, writer, chunks)
    else:  # too late to change anything: the same bytes are welcome, others are refused by `record_part`
        digest = await _hash(chunks)
    await given.store.write(
        uploads.record_part, upload.tenant_id, upload_id, file_id, number, length, digest, given.clock()
    )
    given.metrics.uploaded_bytes.inc(length)
    return PartBody(number=number, size_bytes=length, sha256=digest)


def _announced_digest(request: Request) -> str | None:
    value = request.headers.get(DIGEST_HEADER)
    if value is not None and re.fullmatch(r"[0-9a-f]{64}", value) is None:
        raise InvalidInput(f"{DIGEST_HEADER} must be 64 lower-case hex digits", param=DIGEST_HEADER)
    return value


def _length(upload: Upload, file_id: str, number: int) -> int:
    file = next((f for f in upload.files if f.id == file_id), None)
    if file is None:
        raise InvalidInput(f"upload {upload.id} has no file {file_id!r:.80}", code="file_not_found")
    try:
        return PartPlan(file.size_bytes, file.part_size_bytes, file.part_count).length_of(number)
    except IndexError as error:
        text = f"file {file.name!r} has parts 1 to {file.part_count}, not {number}"
        raise InvalidInput(text, code="part_not_found", param="number") from error


async def _bounded(request: Request, length: int) -> AsyncIterator[bytes]:
    """The body in pieces of about a MiB.

    Raises: ChecksumMismatch: it has fewer bytes than the part; TooLarge: more.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > length:
        raise TooLarge(f"the part has {length} bytes; {announced} were announced")
    buffer = bytearray()
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > length:
            raise TooLarge(f"the part has {length} bytes; more were sent")
        buffer += chunk
        if len(buffer) >= _BUFFER_BYTES:
            yield bytes(buffer)
            buffer.clear()
    if buffer:
        yield bytes(buffer)
    if size != length:
        raise ChecksumMismatch(f"the part has {length} bytes; {size} were sent", code="part_size_mismatch")


async def _store(given: Services, writer: BlobWriter, chunks: AsyncIterator[bytes]) -> str:
    """Write, check and publish the bytes; what goes wrong, a client that leaves too, leaves nothing
    behind.
    """
    with writer:
        async for chunk in chunks:
            await given.files.run(writer.write, chunk)
        return (await given.files.run(writer.commit)).sha256


async def _hash(chunks: AsyncIterator[bytes]) -> str:
    digest = hashlib.sha256()
    async for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
