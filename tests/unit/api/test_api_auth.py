"""Closed unless opened: keys, scopes, sessions and their protection against other sites."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import httpx
import pytest

from api.auth import COOKIE, PUBLIC_ROUTES, is_public
from api.signing import Session, Signer
from storage import keys
from storage.records import Scope
from tests.support.gateway import URL, Gateway
from tests.support.routes import RouteInfo, routes_of


@pytest.fixture
async def browser(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    """A client without a key that keeps cookies, as a browser does."""
    async with gateway.client("") as client:
        yield client


async def sign_in(browser: httpx.AsyncClient, secret: str) -> httpx.Response:
    return await browser.post("/dashboard/sign-in", data={"key": secret, "next": "/dashboard/keys"})


def closed_routes(gateway: Gateway) -> list[RouteInfo]:
    return [r for r in routes_of(gateway.app) if (r.method, r.path) not in PUBLIC_ROUTES]


async def test_every_route_off_the_public_list_is_401_without_a_key(
    gateway: Gateway, browser: httpx.AsyncClient
) -> None:
    statuses = {r: (await browser.request(r.method, r.filled())).status_code for r in closed_routes(gateway)}
    assert len(statuses) > 30
    assert {r for r, status in statuses.items() if status != 401} == set()


async def test_every_closed_route_demands_a_scope(gateway: Gateway) -> None:
    bare = {(r.method, r.path) for r in closed_routes(gateway) if not r.scopes}
    assert bare == {("POST", "/dashboard/sign-out")}


async def test_every_public_route_exists(gateway: Gateway) -> None:
    existing = {(r.method, r.path) for r in routes_of(gateway.app)}
    assert existing >= PUBLIC_ROUTES


async def test_a_path_that_does_not_exist_is_401_too(browser: httpx.AsyncClient) -> None:
    assert (await browser.get("/invocations")).status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/health/live", True),
        ("HEAD", "/health/live", True),
        ("POST", "/health/live", False),
        ("GET", "/health/live/", False),
        ("GET", "/health/live/../../api/v1/keys", False),
        ("GET", "/dashboard/static/style.css", True),
        ("GET", "/dashboard/static/a/b", False),
        ("PUT", "/api/v1/uploads/u/files/f/parts/1", True),
        ("GET", "/api/v1/uploads/u/files/f/parts/1", False),
    ],
)
def test_public_routes_match_whole_paths_and_methods(method: str, path: str, expected: bool) -> None:
    assert is_public(method, path) is expected


async def test_a_wrong_key_is_told_apart_from_none(gateway: Gateway, browser: httpx.AsyncClient) -> None:
    wrong = await browser.get("/api/v1/models", headers={"authorization": "Bearer ck_wrong"})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (401, "invalid_api_key")
    assert "unknown or was revoked" in wrong.json()["error"]["message"]


@pytest.mark.parametrize(
    ("scope", "method", "path", "status"),
    [
        (Scope.READ, "GET", "/api/v1/models", 200),
        (Scope.READ, "GET", "/v1/models", 403),
        (Scope.READ, "DELETE", "/api/v1/models/x", 403),
        (Scope.INFERENCE, "GET", "/v1/models", 200),
        (Scope.INFERENCE, "GET", "/api/v1/usage", 403),
        (Scope.ADMIN, "GET", "/v1/models", 200),
        (Scope.ADMIN, "DELETE", "/api/v1/models/x", 404),
    ],
)
async def test_a_key_does_what_its_scopes_say(
    gateway: Gateway, scope: Scope, method: str, path: str, status: int
) -> None:
    async with gateway.client(gateway.secrets[scope]) as client:
        assert (await client.request(method, path)).status_code == status


async def test_a_revoked_key_is_refused_at_once(gateway: Gateway, http: httpx.AsyncClient) -> None:
    made = (await http.post("/api/v1/keys", json={"name": "soon gone", "scopes": ["read"]})).json()
    async with gateway.client(made["secret"]) as client:
        before = await client.get("/api/v1/models")
        await http.delete(f"/api/v1/keys/{made['id']}")
        after = await client.get("/api/v1/models")
    assert (before.status_code, after.status_code) == (200, 401)


async def test_a_page_sends_a_browser_to_sign_in(browser: httpx.AsyncClient) -> None:
    response = await browser.get("/dashboard/spend", headers={"accept": "text/html"})
    assert response.status_code == 303
    assert response.headers["location"] == "/dashboard/sign-in?next=/dashboard/spend"


async def test_signing_in_sets_a_cookie_that_scripts_and_other_sites_do_not_get(
    gateway: Gateway, browser: httpx.AsyncClient
) -> None:
    response = await sign_in(browser, gateway.secrets[Scope.ADMIN])
    cookie = response.headers["set-cookie"]
    assert (response.status_code, response.headers["location"]) == (303, "/dashboard/keys")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert gateway.secrets[Scope.ADMIN] not in cookie
    assert (await browser.get("/dashboard/keys")).status_code == 200


@pytest.mark.parametrize("target", ["https://evil.test/", "//evil.test", "/dashboard//evil.test", "/v1"])
async def test_signing_in_never_leads_to_another_place(
    gateway: Gateway, browser: httpx.AsyncClient, target: str
) -> None:
    form = {"key": gateway.secrets[Scope.ADMIN], "next": target}
    response = await browser.post("/dashboard/sign-in", data=form)
    assert response.headers["location"] == "/dashboard"


async def test_a_wrong_key_does_not_sign_in(browser: httpx.AsyncClient) -> None:
    response = await sign_in(browser, "ck_wrong")
    assert response.status_code == 401
    assert "set-cookie" not in response.headers


async def test_a_key_that_may_not_look_does_not_sign_in(gateway: Gateway, browser: httpx.AsyncClient) -> None:
    assert (await sign_in(browser, gateway.secrets[Scope.INFERENCE])).status_code == 403


async def test_a_session_changes_nothing_without_its_token(
    gateway: Gateway, browser: httpx.AsyncClient
) -> None:
    await sign_in(browser, gateway.secrets[Scope.ADMIN])
    form = await browser.post("/dashboard/keys", data={"name": "x", "scope": "read", "csrf": "wrong"})
    api = await browser.post("/api/v1/keys", json={"name": "x"})
    assert (form.status_code, api.status_code) == (403, 403)
    with gateway.database.read() as conn:
        assert len(keys.list_keys(conn, gateway.tenant.id)) == 3


async def test_a_session_with_its_token_may_call_models_and_the_api(
    gateway: Gateway, browser: httpx.AsyncClient
) -> None:
    await sign_in(browser, gateway.secrets[Scope.ADMIN])
    token = token_in((await browser.get("/dashboard/keys")).text)
    made = await browser.post("/api/v1/keys", json={"name": "x"}, headers={"x-csrf-token": token})
    assert made.status_code == 201


async def test_a_session_is_no_good_from_another_site(gateway: Gateway, browser: httpx.AsyncClient) -> None:
    await sign_in(browser, gateway.secrets[Scope.ADMIN])
    token = token_in((await browser.get("/dashboard/keys")).text)
    form = {"name": "x", "scope": "read", "csrf": token}
    foreign = await browser.post("/dashboard/keys", data=form, headers={"origin": "https://evil.test"})
    fetched = await browser.post("/dashboard/keys", data=form, headers={"sec-fetch-site": "cross-site"})
    own = await browser.post("/dashboard/keys", data=form, headers={"origin": URL})
    assert (foreign.status_code, fetched.status_code, own.status_code) == (403, 403, 200)


async def test_a_session_ends_with_its_key(
    gateway: Gateway, http: httpx.AsyncClient, browser: httpx.AsyncClient
) -> None:
    made = (await http.post("/api/v1/keys", json={"name": "k", "scopes": ["admin"]})).json()
    await sign_in(browser, made["secret"])
    await http.delete(f"/api/v1/keys/{made['id']}")
    assert (await browser.get("/api/v1/models")).status_code == 401


async def test_signing_out_ends_the_session(gateway: Gateway, browser: httpx.AsyncClient) -> None:
    await sign_in(browser, gateway.secrets[Scope.ADMIN])
    token = token_in((await browser.get("/dashboard/keys")).text)
    await browser.post("/dashboard/sign-out", data={"csrf": token})
    assert COOKIE not in browser.cookies


def test_a_session_cookie_that_was_altered_or_is_old_opens_nothing() -> None:
    signer = Signer("a" * 32)
    now = time.time()
    good = signer.seal(Session("ten_1", "key_1", int(now) + 10))
    body, _, signature = good.partition(".")
    assert signer.open(good, now) == Session("ten_1", "key_1", int(now) + 10)
    assert signer.open(good, now + 11) is None
    assert signer.open(f"{body}x.{signature}", now) is None
    assert signer.open(f"{body}.{signature[:-1]}0", now) is None or signature.endswith("0")
    assert Signer("b" * 32).open(good, now) is None
    assert signer.open("garbage", now) is None


def token_in(page: str) -> str:
    """The token that a page carries for its scripts."""
    return page.split('name="csrf-token" content="')[1].split('"')[0]


async def test_browsers_are_let_send_the_origin_of_our_own_forms(browser: httpx.AsyncClient) -> None:
    """With "no-referrer" they send `Origin: null`, and nobody could sign in."""
    page = await browser.get("/dashboard/sign-in")
    assert page.headers["referrer-policy"] == "same-origin"
