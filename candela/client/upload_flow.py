"""The way of an upload as a generator of steps: create, send what is missing, look again, complete. Pure.

`Client` and `AsyncClient` carry out the steps; the order, the resuming and the giving up are decided here.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import calls
from .errors import ApiError, ClientError, PermissionDenied, UploadFailed
from .results import Upload
from .source import LocalCheckpoint

IDLE_ROUNDS = 4
"""An upload is given up after so many rounds in which nothing was accepted."""

_GIVEN_UP = frozenset({"failed", "aborted"})


@dataclass(frozen=True, slots=True)
class Ask:
    """Carry out the call and send back what it read."""

    call: calls.Call[Any]


@dataclass(frozen=True, slots=True)
class PartToSend:
    path: Path
    offset: int
    size: int
    url: str


@dataclass(frozen=True, slots=True)
class Send:
    """PUT these parts, several at a time, and send back the errors of those that failed.

    `done_bytes` of `total_bytes` are at the platform already.
    """

    parts: tuple[PartToSend, ...]
    done_bytes: int
    total_bytes: int


Step = Ask | Send
Flow = Generator[Step, Any, Upload]


def start_upload(source: LocalCheckpoint, model: str, options: Mapping[str, Any]) -> Flow:
    """Raises: `UploadRefused`, `UploadFailed`, or what a call raises."""
    files = [{"name": f.name, "size_bytes": f.size_bytes, "sha256": f.sha256} for f in source.files]
    upload = yield Ask(calls.create_upload(model, files, source.config, source.headers, options))
    return (yield from _finish(source, upload))


def resume_upload(source: LocalCheckpoint, upload_id: str) -> Flow:
    """Go on with an upload that broke off; only the parts that were not accepted are sent."""
    upload = yield Ask(calls.get_upload(upload_id))
    return (yield from _finish(source, upload))


def _finish(source: LocalCheckpoint, upload: Upload) -> Flow:
    idle_rounds, received = 0, -1
    last: ClientError | None = None
    while idle_rounds < IDLE_ROUNDS:
        if upload.state in _GIVEN_UP:
            raise _given_up(upload)
        if upload.job_id is not None:
            return upload
        step = _missing(source, upload)
        if not step.parts:
            completed: Upload = yield Ask(calls.complete_upload(upload.id))
            return completed
        idle_rounds = idle_rounds + 1 if step.done_bytes <= received else 0
        received = step.done_bytes
        errors: tuple[ClientError, ...] = yield step
        last = _first_passing(errors) or last
        upload = yield Ask(calls.get_upload(upload.id))
    raise UploadFailed(f"upload {upload.id} makes no headway ({last}): resume it later", upload_id=upload.id)


def _missing(source: LocalCheckpoint, upload: Upload) -> Send:
    local = {file.name: file for file in source.files}
    changed = [f.name for f in upload.files if f.name not in local or local[f.name].sha256 != f.sha256]
    if changed:
        names = ", ".join(changed)
        raise UploadFailed(f"the local files differ from upload {upload.id}: {names}", upload_id=upload.id)
    parts = tuple(
        PartToSend(local[file.name].path, part.offset, part.size_bytes, part.url)
        for file in upload.files
        for part in file.missing_parts
    )
    wanted = [file for file in upload.files if file.needs_bytes]
    return Send(parts, sum(f.received_bytes for f in wanted), sum(f.size_bytes for f in wanted))


def _first_passing(errors: tuple[ClientError, ...]) -> ClientError | None:
    """The error to remember. What no repeat can mend (neither a stale signature nor an outage) is raised."""
    for error in errors:
        if isinstance(error, ApiError) and error.status < 500 and not isinstance(error, PermissionDenied):
            raise error
    return errors[0] if errors else None


def _given_up(upload: Upload) -> UploadFailed:
    if upload.failure is None:
        return UploadFailed(f"upload {upload.id} is {upload.state}", upload_id=upload.id)
    return UploadFailed(upload.failure.message, upload_id=upload.id, code=upload.failure.code)
