"""The ASGI application: routes, middleware, lifetime. What it works with comes in as `Services`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.responses import RedirectResponse, Response

from api import dashboard, errors, manage, openai
from api.auth import Gatekeeper
from api.manage.health import own_version
from api.middleware import RequestScope
from api.openapi import document
from api.services import Services


def create_app(services: Services) -> FastAPI:
    """Every route of the gateway. Starting and stopping the services is the lifespan's."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await services.start()
        try:
            yield
        finally:
            await services.close()

    app = FastAPI(title="Candela", docs_url=None, redoc_url=None, lifespan=lifespan)
    app.state.services = services
    errors.install(app)
    for router in (*manage.routers(), *openai.routers(), *dashboard.routers()):
        app.include_router(router)
    app.add_api_route("/", _to_dashboard, include_in_schema=False)
    # The last added runs first: ids, timing and the last word on errors are outermost.
    app.add_middleware(Gatekeeper, store=services.store, signer=services.signer, clock=services.clock)
    app.add_middleware(RequestScope, metrics=services.metrics, clock=services.clock)

    def openapi() -> dict[str, Any]:
        return document(app, own_version())

    app.openapi = openapi  # type: ignore[method-assign]
    return app


async def _to_dashboard() -> Response:
    return RedirectResponse("/dashboard", status_code=303)
