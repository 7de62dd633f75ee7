"""`candela deploy`: which refusals it works around, and which it passes on."""

from __future__ import annotations

import httpx
import pytest

from candela.cli.deployments import create_or_update
from candela.client import Client, Conflict, ScalingPolicy
from tests.support.fake_platform import KEY, URL, FakePlatform, error


def test_a_model_that_is_not_ready_is_reported_as_such() -> None:
    def not_ready(request: httpx.Request) -> httpx.Response | None:
        is_create = request.method == "POST" and request.url.path == "/api/v1/deployments"
        return error(409, "revision_not_ready", "revision rev_1 is compiling") if is_create else None

    platform = FakePlatform(before=not_ready)
    with pytest.raises(Conflict, match="compiling") as caught:
        create_or_update(Client(URL, KEY, transport=platform.transport()), "x", None, ScalingPolicy())
    assert caught.value.code == "revision_not_ready"
    assert len(platform.requests) == 1
