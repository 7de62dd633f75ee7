"""Signing in with an API key, and out again. The cookie names the key; it does not hold it."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from api import context
from api.auth import COOKIE, SIGN_IN, refuse_foreign_origin
from api.dashboard import forms
from api.dashboard.render import page
from api.services import Given
from api.signing import Session
from storage import keys
from storage.records import Scope

router = forms.router()

_LIFE_S = 12 * 3600


@router.get(SIGN_IN)
async def sign_in_page(request: Request) -> Response:
    if context.of(request).principal is not None:
        return RedirectResponse("/dashboard", status_code=303)
    return page(request, "sign_in.html", problem="", onward=_inside(request.query_params.get("next", "")))


@router.post(SIGN_IN)
async def sign_in(request: Request, given: Given) -> Response:
    refuse_foreign_origin(request.headers)
    form = await forms.read_open_form(request)
    onward = _inside(form.text("next"))
    key = await given.store.read(keys.find_key, form.text("key"))
    if key is None:
        problem = "This key is unknown or was revoked."
        return page(request, "sign_in.html", status=401, problem=problem, onward=onward)
    if not key.allows(Scope.READ):
        problem = "This key may call models, but not look at the dashboard."
        return page(request, "sign_in.html", status=403, problem=problem, onward=onward)
    session = Session(key.tenant_id, key.id, int(given.clock()) + _LIFE_S)
    response = RedirectResponse(onward, status_code=303)
    response.set_cookie(
        COOKIE,
        given.signer.seal(session),
        max_age=_LIFE_S,
        httponly=True,
        samesite="strict",
        secure=given.settings.secure_cookies or request.url.scheme == "https",
    )
    return response


@router.post("/dashboard/sign-out")
async def sign_out(request: Request) -> Response:
    await forms.read_form(request)
    response = RedirectResponse(SIGN_IN, status_code=303)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


def _inside(target: str) -> str:
    """Where to go after signing in: a page of ours, never another site."""
    is_ours = target == "/dashboard" or target.startswith("/dashboard/")
    return target if is_ours and "//" not in target and "\\" not in target else "/dashboard"
