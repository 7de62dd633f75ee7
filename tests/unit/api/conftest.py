"""The gateway that this folder's tests talk to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.support.gateway import Gateway, make_gateway


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """A running gateway, closed after the test."""
    made = make_gateway(tmp_path)
    async with made.app.router.lifespan_context(made.app):
        yield made


@pytest.fixture
async def http(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    """A client with the admin key."""
    async with gateway.client() as client:
        yield client
