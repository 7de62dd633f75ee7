"""Who may call what: every route needs a key unless it is on the one list of public routes.

Authentication happens here, before routing, so that a new route is closed until someone opens it. What a key
may do (its scopes) is declared on each route with `needs`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Request
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, cookie_parser
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from api import context
from api.context import Principal
from api.errors import error_response
from api.signing import Signer, same_secret
from api.store import Store
from common.clock import Clock
from common.errors import PermissionDenied, PlatformError, Unauthenticated
from storage import keys
from storage.db import Connection
from storage.records import ApiKey, Scope

COOKIE = "candela_session"
CSRF_HEADER = "x-csrf-token"
SIGN_IN = "/dashboard/sign-in"

PUBLIC_ROUTES: frozenset[tuple[str, str]] = frozenset(
    {
        ("GET", "/"),
        ("GET", "/health/live"),
        ("GET", "/health/ready"),
        ("GET", "/version"),
        ("GET", "/openapi.json"),
        ("GET", SIGN_IN),
        ("POST", SIGN_IN),
        ("GET", "/dashboard/static/{name}"),
        ("GET", "/favicon.ico"),
        ("PUT", "/api/v1/uploads/{upload_id}/files/{file_id}/parts/{number}"),
    }
)
"""Routes that need no key. The part route is authorised by the signature in its URL."""

_SAFE = {"GET", "HEAD", "OPTIONS"}


class Gatekeeper:
    """ASGI middleware: finds the principal of a request, or answers 401 (a browser is sent to sign in)."""

    def __init__(self, app: ASGIApp, store: Store, signer: Signer, clock: Clock) -> None:
        self._app = app
        self._store = store
        self._signer = signer
        self._clock = clock

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            principal = await self._principal(scope)
        except PlatformError as error:
            await _refusal(scope, error)(scope, receive, send)
            return
        context.of(scope).principal = principal
        await self._app(scope, receive, send)

    async def _principal(self, scope: AsgiScope) -> Principal | None:
        headers = Headers(scope=scope)
        is_open = is_public(scope["method"], scope["path"])
        secret = _bearer(headers)
        if secret is not None:
            key = await self._store.read(keys.find_key, secret)
            if key is None and not is_open:
                raise Unauthenticated("this API key is unknown or was revoked")
            return Principal(key) if key else None
        principal = await self._from_session(scope, headers)
        if principal is None and not is_open:
            raise Unauthenticated("send an API key: `Authorization: Bearer <key>`")
        return principal

    async def _from_session(self, scope: AsgiScope, headers: Headers) -> Principal | None:
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE)
        session = self._signer.open(cookie, self._clock()) if cookie else None
        if session is None:
            return None
        key = await self._store.read(_live_key, session.tenant_id, session.key_id)
        if key is None:
            return None
        principal = Principal(key, csrf=self._signer.csrf_token(session))
        if scope["method"] not in _SAFE:
            refuse_foreign_origin(headers)
            if not scope["path"].startswith("/dashboard/"):
                check_csrf(principal, headers.get(CSRF_HEADER, ""))
        return principal


def is_public(method: str, path: str) -> bool:
    """Whether a request needs no key, by the list above."""
    return any(method in (m, "HEAD" if m == "GET" else m) and r.fullmatch(path) for m, r in _PUBLIC)


def check_csrf(principal: Principal, token: str) -> None:
    """A change asked for through a session must carry the token of that session.

    Raises: PermissionDenied.
    """
    if principal.csrf is not None and not same_secret(principal.csrf, token):
        raise PermissionDenied("this form has expired; reload the page and try again", code="csrf_failed")


def needs(scope: Scope) -> Callable[[Request], Awaitable[Principal]]:
    """A dependency that lets through only keys with `scope`.

    Raises: Unauthenticated, PermissionDenied.
    """

    async def principal(request: Request) -> Principal:
        found = context.of(request).principal
        if found is None:
            raise Unauthenticated("send an API key: `Authorization: Bearer <key>`")
        if not found.key.allows(scope):
            raise PermissionDenied(f"this key lacks the scope {scope.value!r}")
        return found

    principal.needed_scope = scope  # type: ignore[attr-defined]
    return principal


Reader = Annotated[Principal, Depends(needs(Scope.READ))]
Admin = Annotated[Principal, Depends(needs(Scope.ADMIN))]
Caller = Annotated[Principal, Depends(needs(Scope.INFERENCE))]


def _live_key(conn: Connection, tenant_id: str, key_id: str) -> ApiKey | None:
    mine = (k for k in keys.list_keys(conn, tenant_id) if k.id == key_id and k.revoked_at is None)
    return next(mine, None)


def _bearer(headers: Headers) -> str | None:
    kind, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip() if kind.lower() == "bearer" and secret.strip() else None


def refuse_foreign_origin(headers: Headers) -> None:
    """Browsers say where a request comes from; a session is good only for our own pages."""
    site = headers.get("sec-fetch-site")
    origin = headers.get("origin")
    is_ours = origin is None or origin.partition("://")[2] == headers.get("host")
    if site not in (None, "same-origin", "none") or not is_ours:
        raise PermissionDenied("this request comes from another site", code="csrf_failed")


def _refusal(scope: AsgiScope, error: PlatformError) -> ASGIApp:
    connection = HTTPConnection(scope)
    is_page = scope["method"] == "GET" and scope["path"].startswith("/dashboard")
    if is_page and "text/html" in connection.headers.get("accept", ""):
        return RedirectResponse(f"{SIGN_IN}?next={quote(scope['path'])}", status_code=303)
    return error_response(error)


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile("/".join(r"[^/]+" if p.startswith("{") else re.escape(p) for p in path.split("/")))


_PUBLIC = tuple((method, _pattern(path)) for method, path in PUBLIC_ROUTES)
