"""One real Valkey server for the storage tests, and clients that find it empty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from storage import leases
from storage.embedded import RunningValkey, start_valkey


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningValkey]:
    server = start_valkey(Path(tmp_path_factory.mktemp("data")))
    yield server
    server.stop()


@pytest.fixture
def r(valkey: RunningValkey) -> Iterator[Redis]:
    client = leases.connect(valkey.url)
    client.flushall()
    yield client
    client.close()
