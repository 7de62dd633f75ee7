"""The examples of docs/api.md, run against a gateway in this process, with a replica that spells."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from storage.records import Scope
from tests.support.curl import CurlExample, curl_examples
from tests.support.gateway import URL, Gateway, deploy, make_gateway
from tests.support.repository import ROOT
from tests.support.tiny_tokenizer import write_tiny_tokenizer
from tests.support.wire_replica import wire_replica

EXAMPLES = curl_examples(ROOT / "docs" / "api.md")


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """With `tiny` deployed and a ready replica of it."""
    gateway = make_gateway(tmp_path)
    tiny = deploy(gateway, write_tokenizer=write_tiny_tokenizer)
    async with gateway.app.router.lifespan_context(gateway.app), wire_replica(tmp_path) as replica:
        gateway.leases.put(replica.lease(tiny.id, gateway.tenant.id))
        yield gateway


async def test_every_example_is_answered_as_the_page_says(gateway: Gateway) -> None:
    async with gateway.client("") as client:
        found = [(e.command, await status_of(client, gateway, e)) for e in EXAMPLES]
    assert found == [(e.command, e.status) for e in EXAMPLES]


def test_the_page_has_examples_of_both_surfaces() -> None:
    paths = {example.url.removeprefix("$CANDELA_URL").split("/")[1] for example in EXAMPLES}
    assert {"v1", "api"} <= paths


async def status_of(client: httpx.AsyncClient, gateway: Gateway, example: CurlExample) -> int:
    secret = gateway.secrets[Scope.ADMIN]
    response = await client.request(
        example.method,
        example.url.replace("$CANDELA_URL", URL),
        headers={name: value.replace("$CANDELA_API_KEY", secret) for name, value in example.headers},
        content=example.body,
    )
    return response.status_code
