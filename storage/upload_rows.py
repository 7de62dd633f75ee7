"""Reading upload rows with their files; the rules are in `storage.uploads`."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from storage.errors import UploadNotFound
from storage.records import Failure, Upload, UploadFile, UploadState
from storage.tables import upload_files, uploads


def load_upload(conn: Connection, upload_id: str) -> Upload:
    """For the control plane: any tenant's upload.

    Raises: UploadNotFound.
    """
    found = select_uploads(conn, uploads.c.id == upload_id, 1)
    if not found:
        raise UploadNotFound(upload_id)
    return found[0]


def select_uploads(conn: Connection, where: sa.ColumnElement[bool], limit: int) -> tuple[Upload, ...]:
    """Newest first, each with its files in the manifest's order."""
    rows = (
        conn.execute(sa.select(uploads).where(where).order_by(uploads.c.id.desc()).limit(limit))
        .mappings()
        .all()
    )
    files: dict[str, list[UploadFile]] = {row["id"]: [] for row in rows}
    found = conn.execute(
        sa.select(upload_files)
        .where(upload_files.c.upload_id.in_(files))
        .order_by(upload_files.c.upload_id, upload_files.c.position)
    ).mappings()
    for row in found:
        files[row["upload_id"]].append(_file(row))
    return tuple(_upload(row, tuple(files[row["id"]])) for row in rows)


def _file(row: Any) -> UploadFile:
    return UploadFile(
        id=row["id"],
        upload_id=row["upload_id"],
        name=row["name"],
        size_bytes=row["size_bytes"],
        sha256=row["sha256"],
        part_size_bytes=row["part_size_bytes"],
        part_count=row["part_count"],
        reused_key=row["reused_key"],
    )


def _upload(row: Any, files: tuple[UploadFile, ...]) -> Upload:
    failure = None
    if row["failure_code"] is not None:
        failure = Failure(row["failure_code"], row["failure_message"])
    return Upload(
        id=row["id"],
        tenant_id=row["tenant_id"],
        model_name=row["model_name"],
        state=UploadState(row["state"]),
        files=files,
        options=row["options"],
        failure=failure,
        revision_id=row["revision_id"],
        job_id=row["job_id"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )
