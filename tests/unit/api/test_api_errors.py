"""One shape, the right status, never a 422, and nothing of ours in a 500."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from api.errors import HTTP_STATUS, error_body, error_response, http_status, internal_error
from api.routing import parse_json
from common import errors
from common.errors import NotFound, Overloaded, PlatformError
from storage.errors import SpendCapReached
from tests.support.asgi import Exchange
from tests.support.gateway import Gateway
from tests.support.routes import routes_of

KEYS = {"message", "type", "param", "code"}


def leaves(cls: type[PlatformError]) -> list[type[PlatformError]]:
    return [cls, *(leaf for sub in cls.__subclasses__() for leaf in leaves(sub))]


def test_every_error_of_the_platform_has_a_status_between_400_and_599() -> None:
    statuses = {http_status(cls.__new__(cls)) for cls in leaves(PlatformError)}
    assert statuses <= set(HTTP_STATUS.values())
    assert 422 not in statuses


def test_a_new_error_takes_its_ancestors_status() -> None:
    class GoneFishing(errors.NotFound):
        code = "gone_fishing"

    assert http_status(GoneFishing("x")) == 404


@pytest.mark.parametrize(
    ("error", "header", "value"),
    [
        (Overloaded("later", retry_after_s=7), "retry-after", "7"),
        (Overloaded("later"), "x-should-retry", "true"),
        (SpendCapReached("no money"), "x-should-retry", "false"),
        (errors.Conflict("broken", code="compile_failed"), "x-should-retry", "false"),
        (errors.Unauthenticated("who"), "www-authenticate", "Bearer"),
    ],
)
def test_errors_tell_a_client_whether_to_try_again(error: PlatformError, header: str, value: str) -> None:
    assert error_response(error).headers[header] == value


def test_a_model_that_is_not_ready_may_be_tried_again() -> None:
    response = error_response(errors.Conflict("soon", code="model_not_ready"))
    assert "x-should-retry" not in response.headers


def test_an_internal_error_names_the_request_and_nothing_else() -> None:
    body = error_body(internal_error("req_1"))["error"]
    assert (set(body), body["type"], body["code"]) == (KEYS, "server_error", "server_error")
    assert "req_1" in body["message"]


async def test_every_json_route_answers_garbage_with_a_400_of_the_one_shape(
    gateway: Gateway, http: httpx.AsyncClient
) -> None:
    json_routes = [
        r
        for r in routes_of(gateway.app)
        if r.method in ("POST", "PATCH") and not r.path.startswith("/dashboard") and takes_body(r.endpoint)
    ]
    answers = {
        (r.path, body): await http.request(
            r.method, r.filled(), content=body, headers={"content-type": "application/json"}
        )
        for r in json_routes
        for body in (b"{", b"[]", b'"x"', b"{}", b'{"temperature": NaN}', b"\xff", b"null")
    }
    assert len(json_routes) >= 5
    assert {key for key, a in answers.items() if a.status_code != 400 and key[1] != b"{}"} == set()
    assert all(a.status_code < 500 and a.status_code != 422 for a in answers.values())
    assert all(set(a.json()["error"]) >= KEYS for a in answers.values() if a.status_code >= 400)


def takes_body(endpoint: Any) -> bool:
    return "body" in getattr(endpoint, "__annotations__", {})


async def test_malformed_json_says_so(http: httpx.AsyncClient) -> None:
    response = await http.post(
        "/v1/completions", content=b'{"model": ', headers={"content-type": "application/json"}
    )
    assert response.json()["error"]["code"] == "invalid_json"


@pytest.mark.pitfall("S11")
@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_s11_numbers_that_json_does_not_have_are_refused(http: httpx.AsyncClient, literal: str) -> None:
    body = f'{{"model": "m", "prompt": "x", "temperature": {literal}}}'.encode()
    response = await http.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400


def test_half_a_surrogate_pair_is_replaced_and_a_whole_one_kept() -> None:
    assert parse_json(rb'{"\ud800": "a\udfff \ud83d\ude00"}') == {"\ufffd": "a\ufffd \U0001f600"}


async def test_deep_nesting_is_a_400(http: httpx.AsyncClient) -> None:
    body = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    response = await http.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_json")


async def test_another_media_type_is_415(http: httpx.AsyncClient) -> None:
    response = await http.post("/v1/completions", content=b"x", headers={"content-type": "text/plain"})
    assert (response.status_code, response.json()["error"]["code"]) == (415, "unsupported_media_type")


async def test_a_body_without_a_media_type_is_read_as_json(http: httpx.AsyncClient) -> None:
    request = http.build_request("POST", "/v1/completions", content=b'{"model": "m", "prompt": "x"}')
    request.headers.pop("content-type", None)
    assert (await http.send(request)).json()["error"]["code"] == "model_not_found"


async def test_a_body_over_the_limit_is_413(gateway: Gateway, http: httpx.AsyncClient) -> None:
    limit = gateway.services.settings.max_body_bytes
    announced = await http.post(
        "/v1/completions", content=b"x" * (limit + 1), headers={"content-type": "application/json"}
    )

    async def chunks() -> Any:
        for _ in range(limit // 65536 + 2):
            yield b" " * 65536

    unannounced = await http.post(
        "/v1/completions", content=chunks(), headers={"content-type": "application/json"}
    )
    assert announced.status_code == unannounced.status_code == 413
    assert announced.json()["error"]["code"] == "request_too_large"


async def test_unknown_routes_and_methods_have_the_one_shape(http: httpx.AsyncClient) -> None:
    missing, wrong = await http.get("/v1/nothing"), await http.put("/v1/models")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")
    assert set(missing.json()["error"]) == KEYS


async def test_a_defect_is_a_sanitised_500_with_the_requests_id(
    gateway: Gateway, http: httpx.AsyncClient
) -> None:
    gateway.database.close()
    (gateway.services.settings.home / "candela.db").unlink()
    response = await http.get("/api/v1/models")
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (500, "server_error")
    assert response.headers["x-candela-request-id"] in error["message"]
    assert "sqlite" not in response.text.lower()


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_defect(gateway: Gateway) -> None:
    with capture_logs() as logs:
        exchange = Exchange(gateway, "/v1/completions", {"model": "tiny"}, ends_body=False)
        await exchange.leave()
    assert exchange.status is None
    assert [(entry["event"], entry["status"]) for entry in logs] == [("request_served", 499)]


async def test_a_callers_request_id_is_echoed_and_ours_is_shown_beside_it(http: httpx.AsyncClient) -> None:
    mine = await http.get("/version", headers={"x-request-id": "trace-42"})
    hostile = await http.get("/version", headers={"x-request-id": "a b\x7f" * 100})
    assert mine.headers["x-request-id"] == "trace-42"
    assert mine.headers["x-candela-request-id"].startswith("req_")
    assert hostile.headers["x-request-id"] == hostile.headers["x-candela-request-id"]


def test_not_found_is_no_server_error() -> None:
    assert error_body(NotFound("x"))["error"]["type"] == "invalid_request_error"


async def test_the_openapi_document_is_public_and_promises_no_422(gateway: Gateway) -> None:
    async with gateway.client("") as client:
        document = (await client.get("/openapi.json")).json()
    assert "/v1/chat/completions" in document["paths"]
    assert not any(
        "422" in operation["responses"] for path in document["paths"].values() for operation in path.values()
    )
    assert "security" not in document["paths"]["/health/live"]["get"]
    assert document["paths"]["/v1/models"]["get"]["security"] == [{"key": []}]
