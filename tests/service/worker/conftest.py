"""A migrated SQLite database, blobs, a Valkey server, and uploads whose bytes are really there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from redis import Redis

from storage import jobs, leases, uploads
from storage.blobs import DiskBlobs
from storage.db import Database, migrate
from storage.records import FileSpec, Job, Tenant
from tests.support.servers import running_valkey, short_directory
from tests.support.storage_rows import NOW, a_tenant, send_parts

MakeJob = Callable[..., Job]

CHECKPOINT: Mapping[str, bytes] = {"config.json": b"{}", "model.safetensors": b"weights" * 1000}


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
def tenant(database: Database) -> Tenant:
    with database.write() as conn:
        return a_tenant(conn)


@pytest.fixture
def make_job(database: Database, blobs: DiskBlobs, tenant: Tenant) -> MakeJob:
    """Upload files and complete the upload: a queued job."""

    def make(
        files: Mapping[str, bytes] = CHECKPOINT,
        model: str = "tiny",
        options: Mapping[str, object] | None = None,
    ) -> Job:
        specs = [FileSpec(n, len(b), hashlib.sha256(b).hexdigest()) for n, b in files.items()]
        with database.write() as conn:
            upload = uploads.create_upload(conn, tenant.id, model, specs, options or {}, NOW)
            send_parts(conn, upload)
            revision, job = uploads.complete_upload(conn, tenant.id, upload.id, NOW)
        for file in revision.files:
            if not blobs.exists(file.blob_key):
                blobs.put(file.blob_key, [files[file.name]])
        with database.read() as conn:
            return jobs.load_job(conn, job.id)

    return make
