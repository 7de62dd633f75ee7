"""The route class of every JSON route: reads the body once, bounded and strictly, before FastAPI validates
it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from api import services
from api.errors import UnsupportedMediaType
from common.errors import InvalidInput, TooLarge

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class StrictRequest(Request):
    """A request whose body was read and parsed by us; FastAPI gets the results."""

    def __init__(self, request: Request, body: bytes) -> None:
        super().__init__(request.scope, request.receive)
        self._bytes = body
        self._parsed = parse_json(body)

    async def body(self) -> bytes:
        return self._bytes

    async def json(self) -> Any:
        return self._parsed


class StrictRoute(APIRoute):
    """Refuses a body that is too large (413), not JSON by its content type (415), or malformed (400)."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def strict(request: Request) -> Response:
            _check_media_type(request)
            body = await read_body(request, services.of(request).settings.max_body_bytes)
            if not body:
                raise InvalidInput("a JSON body is required", code="missing_body")
            return await handle(StrictRequest(request, body))

        return strict


def router() -> APIRouter:
    return APIRouter(route_class=StrictRoute)


def parse_json(body: bytes) -> Any:
    """Read a body as JSON. Half a surrogate pair, which no store or answer could hold, becomes U+FFFD.

    Raises: InvalidInput: not JSON; `NaN` and `Infinity` are not, though Python's parser takes them.
    """
    try:
        parsed = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
        return _well_formed(parsed) if _SURROGATE.search(body) else parsed
    except RecursionError as error:
        raise InvalidInput("the body nests too deeply", code="invalid_json") from error
    except UnicodeDecodeError as error:
        raise InvalidInput("the body is not UTF-8", code="invalid_json") from error
    except ValueError as error:
        raise InvalidInput(f"the body is not valid JSON: {error}", code="invalid_json") from error


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """Raises: TooLarge: more than `limit_bytes`, announced or sent."""
    announced = request.headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > limit_bytes:
        raise TooLarge(f"the body has {announced} bytes; at most {limit_bytes} are accepted")
    chunks = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit_bytes:
            raise TooLarge(f"the body has more than {limit_bytes} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def _check_media_type(request: Request) -> None:
    declared = request.headers.get("content-type")
    if declared is None:
        request.scope["headers"] = [*request.scope["headers"], (b"content-type", b"application/json")]
        return
    kind = declared.partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise UnsupportedMediaType(f"send application/json, not {kind!r:.80}")


def _well_formed(parsed: Any) -> Any:
    """The same with every text valid Unicode: UTF-16 joins true pairs and shows which halves are alone."""
    text = json.dumps(parsed, ensure_ascii=False)
    return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
