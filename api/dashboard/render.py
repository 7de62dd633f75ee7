"""Templates to pages: one environment, escaped and strict, under a content policy that allows only our
own files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from fastapi import Request
from starlette.responses import HTMLResponse

from api import context, services
from api.dashboard import format as forms_of
from api.manage.health import own_version
from storage.records import Scope

_HERE = Path(__file__).parent
STATIC: Mapping[str, bytes] = {
    path.name: path.read_bytes() for path in sorted((_HERE / "static").iterdir()) if path.is_file()
}
CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {"content-security-policy": CONTENT_POLICY, "cache-control": "no-store"}
NAV = (
    ("/dashboard", "Overview", "home"),
    ("/dashboard/models", "Models", "box"),
    ("/dashboard/jobs", "Jobs", "gear"),
    ("/dashboard/deployments", "Deployments", "rocket"),
    ("/dashboard/requests", "Requests", "list"),
    ("/dashboard/spend", "Spend", "coin"),
    ("/dashboard/keys", "Keys", "key"),
    ("/dashboard/playground", "Playground", "chat"),
)


def page(request: Request, template: str, *, status: int = 200, **data: Any) -> HTMLResponse:
    """Render a template with what every page needs beside `data`."""
    who = context.of(request).principal
    text = _ENVIRONMENT.get_template(template).render(
        path=request.url.path,
        nav=NAV,
        now=services.of(request).clock(),
        version=own_version(),
        who=who,
        csrf=who.csrf or "" if who else "",
        is_admin=bool(who and who.key.allows(Scope.ADMIN)),
        **data,
    )
    return HTMLResponse(text, status_code=status, headers=HEADERS)


def asset(name: str) -> str:
    """A static file's address, with its digest, so that it may be cached for ever."""
    return f"/dashboard/static/{name}?v={hashlib.sha256(STATIC[name]).hexdigest()[:12]}"


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("usd", "count", "compact", "size", "duration", "ago", "moment", "iso", "short_id"):
        environment.filters[name] = getattr(forms_of, name)
    environment.globals["asset"] = asset
    return environment


_ENVIRONMENT = _environment()
