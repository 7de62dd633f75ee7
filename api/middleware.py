"""The outermost layer: mints the request's id, times and logs it, and turns a defect of ours into a sanitised
500.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import context
from api.context import RequestContext
from api.errors import error_response, internal_error
from api.metrics import Metrics
from common.clock import Clock
from common.ids import Kind, new_id

log = structlog.get_logger()

# "no-referrer" would make browsers send `Origin: null` with our own forms, which auth refuses as foreign.
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
}
_CLIENT_ID = re.compile(r"[\x21-\x7e]{1,128}")
_QUIET = {"/health/live", "/health/ready"}
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


class RequestScope:
    """ASGI middleware; everything else runs inside it."""

    def __init__(
        self, app: ASGIApp, metrics: Metrics, clock: Clock, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._clock = clock
        self._monotonic = monotonic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = RequestContext(
            request_id=new_id(Kind.REQUEST),
            client_request_id=client_id(Headers(scope=scope).get("x-request-id")),
            arrived_s=self._monotonic(),
            arrived_at=self._clock(),
        )
        context.attach(scope, request)
        structlog.contextvars.bind_contextvars(request_id=request.request_id)
        sent = _Sent(send, request)
        try:
            await self._app(scope, receive, sent)
        except ClientDisconnect:  # in the middle of its body
            request.status_override = 499
        except Exception:
            log.error("request_crashed", path=_handler(scope), exc_info=True)
            if sent.status is None:
                await error_response(internal_error(request.request_id))(scope, receive, sent)
        finally:
            self._record(scope, request, sent.status)
            structlog.contextvars.unbind_contextvars("request_id")

    def _record(self, scope: Scope, request: RequestContext, sent: int | None) -> None:
        status = request.status_override or sent or 499
        elapsed_s = self._monotonic() - request.arrived_s
        handler = _handler(scope)
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.http_requests.labels(handler, method, str(status)).inc()
        self._metrics.http_seconds.labels(handler, method).observe(elapsed_s)
        if handler in _QUIET:
            return
        log.info(
            "request_served",
            handler=handler,
            method=method,
            status=status,
            elapsed_ms=round(elapsed_s * 1000, 1),
            client_request_id=request.client_request_id,
            tenant_id=request.principal.tenant_id if request.principal else None,
        )


def client_id(value: str | None) -> str | None:
    """A caller's own request id, if it is short and printable: it is echoed and logged, and means nothing to
    us.
    """
    return value if value is not None and _CLIENT_ID.fullmatch(value) else None


class _Sent:
    """`send`, with our headers on every answer; remembers the status."""

    def __init__(self, send: Send, request: RequestContext) -> None:
        self._send = send
        self._request = request
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            headers["x-request-id"] = self._request.client_request_id or self._request.request_id
            headers["x-candela-request-id"] = self._request.request_id
            for name, value in self._request.headers.items():
                headers[name] = value
        await self._send(message)


def _handler(scope: Scope) -> str:
    """The route's template, never the path itself: a label set must be bounded."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else "unmatched"
