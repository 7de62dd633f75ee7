"""A Valkey server, a migrated SQLite database, blobs, and directories short enough for Unix sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from storage import leases
from storage.blobs import DiskBlobs
from storage.db import Database, migrate
from storage.records import Deployment
from tests.support.servers import running_valkey, short_directory
from tests.support.serving import deployed
from tests.support.stage import RULES, SCALABLE, Stage


@pytest.fixture
def short_dir() -> Iterator[Path]:
    with short_directory() as path:
        yield path


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with running_valkey() as url:
        yield url


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    client = leases.connect(redis_url)
    client.flushdb()
    yield client
    client.close()


@pytest.fixture
def database(short_dir: Path) -> Iterator[Database]:
    url = f"sqlite:///{short_dir / 'candela.db'}"
    migrate(url)
    database = Database(url)
    yield database
    database.close()


@pytest.fixture
def blobs(short_dir: Path) -> DiskBlobs:
    return DiskBlobs(short_dir / "blobs")


@pytest.fixture
def make_stage(database: Database, redis: Redis, blobs: DiskBlobs, short_dir: Path) -> Callable[..., Stage]:
    return lambda rules=RULES: Stage(database, redis, blobs, short_dir, rules)


@pytest.fixture
def stage(make_stage: Callable[..., Stage]) -> Stage:
    return make_stage()


@pytest.fixture
def chat(stage: Stage) -> Deployment:
    return deployed(stage.database, stage.blobs, stage.tenant, "chat", SCALABLE)
