"""`/health/live`, `/health/ready`, `/version`: public, and cheap enough to be asked every second."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from starlette.responses import JSONResponse, Response

from api import routing
from api.errors import error_body
from api.services import Given
from common.errors import Overloaded

router = routing.router()


class NotReady(Overloaded):
    code = "not_ready"


@router.get("/health/live", tags=["health"])
async def live() -> dict[str, str]:
    """The process answers."""
    return {"status": "live"}


@router.get("/health/ready", tags=["health"], responses={503: {"description": "A part does not answer"}})
async def ready(given: Given) -> Response:
    """SQL, blobs and Redis answer and the migrations are current. It stays ready at zero replicas."""
    parts = {name: "ok" if is_up else "down" for name, is_up in (await given.readiness.parts()).items()}
    down = ", ".join(name for name, state in parts.items() if state == "down")
    if not down:
        return JSONResponse({"status": "ready", "parts": parts})
    body = {**error_body(NotReady(f"not ready: {down}")), "status": "not_ready", "parts": parts}
    return JSONResponse(body, status_code=503, headers={"retry-after": "2"})


@router.get("/version", tags=["health"])
async def get_version() -> dict[str, str]:
    return {"name": "candela", "version": own_version()}


def own_version() -> str:
    """The installed distribution's version; a source tree without one says so."""
    try:
        return version("candela")
    except PackageNotFoundError:
        return "0+source"
