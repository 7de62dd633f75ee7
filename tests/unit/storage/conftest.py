"""A fresh database a test: SQLite, and PostgreSQL too when CANDELA_TEST_POSTGRES_URL names a server."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from storage.db import Connection, Database, migrate
from storage.records import Tenant
from tests.support.storage_rows import a_tenant

POSTGRES_URL = os.environ.get("CANDELA_TEST_POSTGRES_URL")
DATABASES = ["sqlite", "postgresql"] if POSTGRES_URL else ["sqlite"]


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "candela.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def migrated_postgres() -> Iterator[str]:
    """Name of a migrated PostgreSQL database, for `CREATE DATABASE ... TEMPLATE`."""
    name = f"candela_test_{uuid.uuid4().hex[:12]}"
    _administer(f"CREATE DATABASE {name}")
    migrate(_postgres(name))
    yield name
    _administer(f"DROP DATABASE {name}")


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of a migrated database without rows."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_sqlite"), tmp_path / "candela.db")
        yield f"sqlite:///{tmp_path / 'candela.db'}"
        return
    name = f"candela_test_{uuid.uuid4().hex[:12]}"
    _administer(f"CREATE DATABASE {name} TEMPLATE {request.getfixturevalue('migrated_postgres')}")
    yield _postgres(name)
    _administer(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=DATABASES)
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of a database without tables."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.db'}"
        return
    name = f"candela_test_{uuid.uuid4().hex[:12]}"
    _administer(f"CREATE DATABASE {name}")
    yield _postgres(name)
    _administer(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def conn(db: Database) -> Iterator[Connection]:
    """One write transaction for the whole test."""
    with db.write() as connection:
        yield connection


@pytest.fixture
def tenant(conn: Connection) -> Tenant:
    return a_tenant(conn)


def _administer(statement: str) -> None:
    engine = sa.create_engine(make_url(str(POSTGRES_URL)), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(statement))
    engine.dispose()


def _postgres(name: str) -> str:
    return make_url(str(POSTGRES_URL)).set(database=name).render_as_string(hide_password=False)
