"""What belongs to one HTTP request: ids, arrival, who calls, and the headers its answer will carry."""

from __future__ import annotations

from dataclasses import dataclass, field

from starlette.requests import HTTPConnection
from starlette.types import Scope as AsgiScope

from storage.records import ApiKey

_KEY = "candela.context"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls: a live key, presented as a bearer token or through the dashboard's session (`csrf` is then
    set).
    """

    key: ApiKey
    csrf: str | None = None

    @property
    def tenant_id(self) -> str:
        return self.key.tenant_id


@dataclass(slots=True)
class RequestContext:
    """Made by the outermost middleware. `arrived_s` is monotonic, `arrived_at` is Unix time."""

    request_id: str
    client_request_id: str | None
    arrived_s: float
    arrived_at: float
    principal: Principal | None = None
    headers: dict[str, str] = field(default_factory=dict)
    status_override: int | None = None
    """What the log and the metrics say instead of the status sent, such as 499."""


def attach(scope: AsgiScope, context: RequestContext) -> None:
    scope[_KEY] = context


def of(connection: HTTPConnection | AsgiScope) -> RequestContext:
    """The context of a request that went through the middleware."""
    scope = connection.scope if isinstance(connection, HTTPConnection) else connection
    context = scope[_KEY]
    assert isinstance(context, RequestContext)
    return context
