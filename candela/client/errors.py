"""What the client raises: one tree, so that a caller can catch as widely or as narrowly as it likes.

ClientError
├── ApiError             the platform answered with an error: status, code, message, problems
│   ├── BadRequest (400) ── UploadRefused
│   ├── Unauthenticated (401) · InsufficientFunds (402) · PermissionDenied (403) · NotFound (404)
│   ├── Conflict (409) · TooLarge (413) · RateLimited (429)
│   └── ServerError (5xx) ── Overloaded (503)
├── ConnectionFailed     no answer came
├── NotConfigured        no address or no key is known
├── CheckpointUnusable   the local files cannot be a model; nothing was sent
├── UploadFailed         parts could not be sent after all retries, or the platform gave the upload up
├── JobFailed            a watched job ended badly
├── StreamFailed         a streamed answer broke off with an error
└── ProtocolError        an answer that is not what this client understands
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class ClientError(Exception):
    """Root of everything this package raises on purpose; `str()` is one sentence for a person."""

    code = "client_error"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an upload: `code` is stable, `where` names the file or tensor."""

    code: str
    message: str
    where: str | None = None


class ApiError(ClientError):
    """An error the platform answered. `code` is public and stable; match on it, not on the message."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        problems: tuple[Problem, ...] = (),
        request_id: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.problems = problems
        self.request_id = request_id
        self.retry_after_s = retry_after_s


class BadRequest(ApiError):
    pass


class UploadRefused(BadRequest):
    """The platform refused the files; `problems` lists every reason."""


class Unauthenticated(ApiError):
    pass


class InsufficientFunds(ApiError):
    pass


class PermissionDenied(ApiError):
    pass


class NotFound(ApiError):
    pass


class Conflict(ApiError):
    pass


class TooLarge(ApiError):
    pass


class RateLimited(ApiError):
    pass


class ServerError(ApiError):
    pass


class Overloaded(ServerError):
    pass


class ConnectionFailed(ClientError):
    code = "connection_failed"


class NotConfigured(ClientError):
    code = "not_configured"


class ProtocolError(ClientError):
    code = "protocol_error"


class UploadFailed(ClientError):
    """`upload_id` can be passed to `uploads.resume` unless the platform itself gave the upload up."""

    code = "upload_failed"

    def __init__(self, message: str, *, upload_id: str, code: str | None = None) -> None:
        super().__init__(message)
        self.upload_id = upload_id
        if code is not None:
            self.code = code


class JobFailed(ClientError):
    """A job ended in `state` (`failed` or `cancelled`)."""

    code = "job_failed"

    def __init__(self, job_id: str, state: str, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.state = state
        if code is not None:
            self.code = code


class StreamFailed(ClientError):
    """The platform ended a stream with an error frame; what came before it stands (and is billed)."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class CheckpointUnusable(ClientError):
    """What is wrong with the local files; found before anything was sent."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        assert problems, "a refusal names at least one problem"
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = problems
        self.code = problems[0].code


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthenticated,
    402: InsufficientFunds,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    429: RateLimited,
    503: Overloaded,
}


def error_from_response(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Read `{"error": {...}}` into the class of its status; a body in any other form still makes an error."""
    raw = _error_object(body)
    problems = tuple(
        Problem(str(p.get("code")), str(p.get("message")), p.get("where"))
        for p in raw.get("problems") or ()
        if isinstance(p, dict)
    )
    fallback = ServerError if status >= 500 else ApiError
    cls = UploadRefused if problems and status == 400 else _BY_STATUS.get(status, fallback)
    return cls(
        status,
        str(raw.get("code") or raw.get("type") or f"http_{status}"),
        str(raw.get("message") or f"the platform answered with status {status}"),
        problems=problems,
        request_id=headers.get("x-request-id"),
        retry_after_s=_seconds(headers.get("retry-after")),
    )


def _error_object(body: bytes) -> dict[str, Any]:
    try:
        raw = json.loads(body)
    except ValueError:
        return {}
    error = raw.get("error") if isinstance(raw, dict) else None
    return error if isinstance(error, dict) else {}


def _seconds(header: str | None) -> float | None:
    try:
        return float(header) if header is not None else None
    except ValueError:
        return None
