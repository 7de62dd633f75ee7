"""HTTP statuses and OpenAI's error shape: the one table, and the handlers that apply it.

Nothing else in the platform knows a status code. Every error body on `/v1` and `/api/v1` is
`{"error": {"message", "type", "param", "code"}}`; 422 is never used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from common.errors import (
    Conflict,
    DeadlineExceeded,
    InsufficientFunds,
    InvalidInput,
    NotFound,
    Overloaded,
    PermissionDenied,
    PlatformError,
    RateLimited,
    TooLarge,
    Unauthenticated,
    UploadRefused,
)

log = structlog.get_logger()

Json = dict[str, Any]


class MethodNotAllowed(PlatformError):
    code = "method_not_allowed"


class UnsupportedMediaType(PlatformError):
    code = "unsupported_media_type"


class UnsupportedParameter(InvalidInput):
    """A parameter we know and can't honour yet. Refused, since ignoring it would change the answer's
    meaning.
    """

    code = "unsupported_parameter"

    def __init__(self, param: str, why: str) -> None:
        super().__init__(f"{param!r} is not supported: {why}", param=param)


class ModelNotFound(NotFound):
    code = "model_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"model {name!r} does not exist, or this key may not use it", param="model")
        self.name = name


class ColdStartTimeout(Overloaded):
    code = "cold_start_timeout"


class DeploymentFailed(Overloaded):
    """No replica of a deployment starts. Whoever asks again later may find it mended."""

    code = "deployment_failed"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"model {name!r} can't be served now: {why}", retry_after_s=10.0)


class ReplicaLost(PlatformError):
    """A replica stopped in the middle of an answer; what it had generated is billed, so the call isn't
    repeated.
    """

    code = "replica_lost"
    is_billed = True


HTTP_STATUS: Mapping[type[PlatformError], int] = {
    PlatformError: 500,
    InvalidInput: 400,
    Unauthenticated: 401,
    InsufficientFunds: 402,
    PermissionDenied: 403,
    NotFound: 404,
    MethodNotAllowed: 405,
    Conflict: 409,
    TooLarge: 413,
    UnsupportedMediaType: 415,
    RateLimited: 429,
    Overloaded: 503,
    DeadlineExceeded: 504,
}
_TYPES: Mapping[int, str] = {
    402: "insufficient_funds",
    403: "permission_error",
    429: "rate_limit_error",
}
_NEVER_RETRIED = {"compile_failed", "insufficient_quota"}


def http_status(error: PlatformError) -> int:
    """Status of the nearest listed ancestor, so that a new error needs no new row."""
    return next(HTTP_STATUS[cls] for cls in type(error).__mro__ if cls in HTTP_STATUS)


def error_body(error: PlatformError) -> Json:
    """OpenAI's error object, all four keys present; a refused upload also lists `problems`."""
    status = http_status(error)
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    body: Json = {"message": str(error), "type": kind, "param": error.param, "code": error.code}
    if isinstance(error, UploadRefused):
        body["problems"] = [{"code": p.code, "message": p.message, "where": p.where} for p in error.problems]
    return {"error": body}


def error_response(error: PlatformError) -> Response:
    return JSONResponse(error_body(error), status_code=http_status(error), headers=_headers(error))


def internal_error(request_id: str) -> PlatformError:
    """What a caller sees of a defect of ours: an id to quote, never the exception's text."""
    return PlatformError(f"internal error; quote request id {request_id} when you report it")


def invalid_body(errors: Sequence[Any]) -> InvalidInput:
    """Name the first offending field of pydantic's `errors` as `param`, and list every one in the message."""
    sentences = [_sentence(e) for e in errors]
    return InvalidInput("; ".join(sentences), param=_path(errors[0]), code=_code(errors[0]))


def from_http_exception(error: HTTPException) -> PlatformError:
    """Translate the framework's own exceptions (no such route, method not allowed, body too large)."""
    phrase = HTTPStatus(error.status_code).phrase
    message = str(error.detail or phrase)
    by_status: Mapping[int, type[PlatformError]] = {v: k for k, v in HTTP_STATUS.items()}
    cls = by_status.get(error.status_code, InvalidInput if error.status_code < 500 else PlatformError)
    return cls(message)


def install(app: FastAPI) -> None:
    """Register the handlers. Anything they don't know reaches `api.middleware`, which answers 500,
    sanitised.
    """

    async def on_platform_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, PlatformError)
        if http_status(error) >= 500:
            log.error("request_failed", code=error.code, message=str(error))
        return error_response(error)

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError | ValidationError)
        return error_response(invalid_body(error.errors()))

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        response = error_response(from_http_exception(error))
        for name, value in (error.headers or {}).items():
            response.headers[name] = value
        return response

    app.add_exception_handler(PlatformError, on_platform_error)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(ValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http)


def _headers(error: PlatformError) -> dict[str, str]:
    """`Retry-After` and `x-should-retry`: the official SDK obeys the second over its own status rule."""
    headers: dict[str, str] = {}
    status = http_status(error)
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.retry_after_s is not None:
        headers["retry-after"] = str(max(1, round(error.retry_after_s)))
    if getattr(error, "is_billed", False) or status == 402 or error.code in _NEVER_RETRIED:
        headers["x-should-retry"] = "false"
    elif status in (429, 503):
        headers["x-should-retry"] = "true"
    elif status == 409 and error.code != "model_not_ready":
        headers["x-should-retry"] = "false"
    return headers


def _path(error: Any) -> str | None:
    """`("body", "messages", 0, "role")` as `messages[0].role`; union arms and wrappers are left out."""
    parts = [p for p in error["loc"] if p not in ("body", "query", "path", "header")]
    if error["type"] == "json_invalid":
        return None
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _is_field_name(part):
            text += f".{part}" if text else part
    return text or None


def _is_field_name(part: str) -> bool:
    """Pydantic names a union's arm in the location (`list[str]`, `function-after[...]`): not a field of
    ours.
    """
    return part.replace("_", "").replace("-", "").isalnum() and part not in _UNION_ARMS


_UNION_ARMS = {"str", "int", "float", "bool", "TextPart", "constrained-str"}


def _sentence(error: Any) -> str:
    message = str(error["msg"]).removeprefix("Value error, ")
    path = _path(error)
    if error["type"] == "json_invalid":
        return f"the body is not valid JSON: {error.get('ctx', {}).get('error', message)}"
    if error["type"] == "missing":
        return f"{path!r} is required" if path else "a JSON body is required"
    return f"{path!r}: {message}" if path else message


def _code(error: Any) -> str:
    if error["type"] == "json_invalid":
        return "invalid_json"
    return "missing_required_parameter" if error["type"] == "missing" else "invalid_value"
