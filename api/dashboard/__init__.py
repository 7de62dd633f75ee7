"""The dashboard: server-rendered pages over the same data as the API, behind a signed session cookie."""

from api.dashboard.routes import routers

__all__ = ["routers"]
