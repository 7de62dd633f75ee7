"""From a `Call` to an httpx request and back to a value or an error; shared by both shells."""

from __future__ import annotations

from typing import TypedDict, TypeVar

import httpx

from .calls import Call
from .config import ClientConfig
from .errors import ConnectionFailed, error_from_response

T = TypeVar("T")
PARALLEL_PARTS = 4
TIMEOUT = httpx.Timeout(60.0, connect=5.0)
CHAT_TIMEOUT = httpx.Timeout(600.0, connect=5.0)
"""A request to a deployment at zero is held while a replica starts, so answers may take long to begin."""


class RequestArguments(TypedDict):
    method: str
    url: str
    params: dict[str, str] | None
    headers: dict[str, str]
    content: bytes | None


def request_arguments(config: ClientConfig, call: Call[T]) -> RequestArguments:
    """What to pass to httpx. A signed address carries its own permission: the key is not sent there."""
    url = call.path if call.path.startswith(("http://", "https://")) else config.url + call.path
    headers = dict(call.headers)
    if not call.is_signed:
        headers["authorization"] = f"Bearer {config.api_key}"
    return RequestArguments(
        method=call.method,
        url=url,
        params=dict(call.query) or None,  # httpx drops the query of `url` when given an empty mapping
        headers=headers,
        content=call.content,
    )


def read_response(call: Call[T], response: httpx.Response) -> T:
    """Raises: `ApiError` of the answer's status."""
    if response.status_code >= 400:
        raise error_from_response(response.status_code, response.headers, response.content)
    return call.read(response.content)


def connection_failed(config: ClientConfig, error: httpx.HTTPError) -> ConnectionFailed:
    reason = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectError):
        return ConnectionFailed(f"no platform answers at {config.url} ({reason}); is `candela up` running?")
    return ConnectionFailed(f"the connection to {config.url} broke: {reason}")
