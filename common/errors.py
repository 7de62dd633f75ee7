"""The platform's error tree. Owns codes and sentences; `api/errors.py` owns HTTP statuses.

PlatformError
├── InvalidInput            bad value from a caller (400)
│   ├── ContextLengthExceeded
│   ├── UploadRefused       carries every problem found, not only the first
│   └── ChecksumMismatch
├── Unauthenticated         (401)
├── InsufficientFunds       (402)
├── PermissionDenied        (403)
├── NotFound                (404)
├── Conflict                (409)
├── TooLarge                (413)
├── RateLimited             (429)
├── Overloaded              (503, retry later)
├── ArtifactDamaged         stored bytes changed; shown on the deployment
└── DeadlineExceeded        (504)
"""

from __future__ import annotations

from dataclasses import dataclass


class PlatformError(Exception):
    """Root of every error the platform raises on purpose. `code` is public and never changes."""

    code = "server_error"
    param: str | None = None
    retry_after_s: float | None = None

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        if param is not None:
            self.param = param


class InvalidInput(PlatformError):
    code = "invalid_request"


class ContextLengthExceeded(InvalidInput):
    code = "context_length_exceeded"


class ChecksumMismatch(InvalidInput):
    code = "checksum_mismatch"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an upload: `code` is stable, `where` names the file or tensor."""

    code: str
    message: str
    where: str | None = None


class UploadRefused(InvalidInput):
    """An upload that cannot become a model. `code` is the first problem's; all are in `problems`."""

    code = "upload_refused"

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        assert problems, "a refusal names at least one problem"
        super().__init__("; ".join(p.message for p in problems), code=problems[0].code)
        self.problems = problems


class Unauthenticated(PlatformError):
    code = "invalid_api_key"


class InsufficientFunds(PlatformError):
    code = "insufficient_funds"


class PermissionDenied(PlatformError):
    code = "permission_denied"


class NotFound(PlatformError):
    code = "not_found"


class Conflict(PlatformError):
    code = "conflict"


class TooLarge(PlatformError):
    code = "request_too_large"


class RateLimited(PlatformError):
    code = "rate_limit_exceeded"


class Overloaded(PlatformError):
    code = "overloaded"

    def __init__(self, message: str, *, retry_after_s: float = 2.0, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


class ArtifactDamaged(PlatformError):
    """Stored bytes of a build are not those that were published. Nothing is served from them."""

    code = "artifact_damaged"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the compiled model is damaged ({what}): upload its checkpoint again with the same options, "
            "which compiles it anew; deployments of it then start by themselves"
        )
        self.what = what


class DeadlineExceeded(PlatformError):
    code = "deadline_exceeded"
