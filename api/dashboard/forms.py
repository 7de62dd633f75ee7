"""Forms of the dashboard: read bounded, and refused unless they carry the session's token."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import RedirectResponse, Response

from api import context
from api.auth import check_csrf
from api.dashboard.render import page
from api.errors import http_status
from api.routing import read_body
from common.errors import InvalidInput, PlatformError, Unauthenticated

_LIMIT_BYTES = 1 << 16


class PageRoute(APIRoute):
    """An error of ours becomes a page instead of JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def shown(request: Request) -> Response:
            try:
                return await handle(request)
            except PlatformError as error:
                status = http_status(error)
                message = str(error) if status < 500 else "Something went wrong on our side."
                return page(request, "error.html", status=status, message=message, code=error.code)

        return shown


def router() -> APIRouter:
    return APIRouter(route_class=PageRoute, include_in_schema=False)


def back_to(path: str) -> Response:
    """Where to look after a change was made."""
    return RedirectResponse(quote(path), status_code=303)


class Form:
    """Fields of a submitted form; one value a name."""

    def __init__(self, fields: dict[str, list[str]]) -> None:
        self._fields = fields

    def text(self, name: str, default: str = "") -> str:
        return self._fields.get(name, [default])[0].strip()

    def all(self, name: str) -> list[str]:
        return self._fields.get(name, [])

    def whole(self, name: str) -> int:
        """Raises: InvalidInput."""
        try:
            return int(self.text(name))
        except ValueError as error:
            raise InvalidInput(f"{name} must be a whole number", param=name) from error

    def number(self, name: str) -> float:
        """Raises: InvalidInput."""
        try:
            return float(self.text(name))
        except ValueError as error:
            raise InvalidInput(f"{name} must be a number", param=name) from error


async def read_form(request: Request) -> Form:
    """Raises: TooLarge, Unauthenticated, PermissionDenied: the token is missing or is another session's."""
    form = await read_open_form(request)
    who = context.of(request).principal
    if who is None:
        raise Unauthenticated("sign in first")
    check_csrf(who, form.text("csrf"))
    return form


async def read_open_form(request: Request) -> Form:
    """A form that needs no session: the sign-in's.

    Raises: TooLarge, InvalidInput.
    """
    body = await read_body(request, _LIMIT_BYTES)
    try:
        return Form(parse_qs(body.decode(), keep_blank_values=True, max_num_fields=100))
    except ValueError as error:
        raise InvalidInput("the form can't be read") from error
