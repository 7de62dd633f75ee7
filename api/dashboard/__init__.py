"""The dashboard: server-rendered pages over the same data as the API, behind a signed session cookie."""

from api import routing

router = routing.router()
__all__ = ["router"]
