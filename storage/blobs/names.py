"""Where blobs live. Pure: every key is made of ids, never of user text."""

from __future__ import annotations

import re

from storage.errors import BadBlobKey

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_MAX_SEGMENTS = 16


def part_key(upload_id: str, file_id: str, number: int) -> str:
    """Bytes of part `number` (from 1) of an upload's file."""
    return check_key(f"uploads/{upload_id}/{file_id}.part{number}")


def file_key(upload_id: str, file_id: str) -> str:
    """An uploaded file, composed of its parts."""
    return check_key(f"uploads/{upload_id}/files/{file_id}")


def build_prefix(tenant_id: str, build_key: str) -> str:
    """The directory of one build; `publish` puts each publication below it and points to the first."""
    return check_key(f"artifacts/{tenant_id}/{build_key}")


def check_key(key: str) -> str:
    """`key` itself when it is a relative path of plain segments; none starts with a dot.

    Raises: BadBlobKey.
    """
    segments = key.split("/")
    if len(segments) > _MAX_SEGMENTS or any(_SEGMENT.fullmatch(s) is None for s in segments):
        raise BadBlobKey(
            f"{key!r:.120} is not a blob key: 1 to {_MAX_SEGMENTS} segments of A-Z a-z 0-9 _ . -"
        )
    return key
