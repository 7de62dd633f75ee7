"""The migration chain: complete, repeatable, safe to start twice, and inside the package."""

from __future__ import annotations

import contextlib
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from storage import upgrade
from storage.db import Database, migrate, migrations_current
from storage.errors import DatabaseUnusable
from storage.ledger import append
from storage.records import Meter, UsageEvent
from storage.tables import metadata
from tests.support.storage_rows import NOW, a_tenant


def test_a_new_database_is_not_current_until_it_is_migrated(empty_database_url):
    assert not migrations_current(empty_database_url)
    migrate(empty_database_url)
    assert migrations_current(empty_database_url)


def test_migrating_again_changes_nothing(database_url):
    migrate(database_url)
    assert migrations_current(database_url)


def test_the_chain_builds_the_tables_that_the_code_uses(db):
    with db.read() as conn:
        context = MigrationContext.configure(conn, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_several_processes_may_migrate_at_once(empty_database_url):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(migrate, [empty_database_url] * 4))
    assert migrations_current(empty_database_url)


def test_a_migration_that_fails_leaves_the_schema_as_it_was(empty_database_url):
    database = Database(empty_database_url)
    with database.write() as conn:
        conn.execute(sa.text("CREATE TABLE jobs (id TEXT)"))  # in the way of the first migration
    with contextlib.suppress(DatabaseUnusable):
        migrate(empty_database_url)
    with database.read() as conn:
        assert sa.inspect(conn).get_table_names() == ["jobs"]
    database.close()


def test_every_table_has_a_tenant():
    without = [
        t.name for t in metadata.tables.values() if "tenant_id" not in t.columns and t.name != "tenants"
    ]
    assert without == []


@pytest.mark.parametrize("statement", ["UPDATE ledger SET quantity = 1", "DELETE FROM ledger"])
def test_the_database_itself_refuses_to_rewrite_the_ledger(db, statement, ledger_row):
    with pytest.raises(sa.exc.DBAPIError, match="append-only"), db.write() as conn:
        conn.execute(sa.text(statement))


def test_the_chain_is_part_of_the_distribution():
    versions = Path(upgrade.__file__).parent / "migrations" / "versions"
    assert (versions / "__init__.py").is_file()
    assert (versions.parent / "__init__.py").is_file()


@pytest.fixture
def ledger_row(db):
    """One recorded event."""
    with db.write() as conn:
        tenant = a_tenant(conn)
        append(conn, UsageEvent(tenant.id, "req_1", Meter.PROMPT_TOKENS, 5, "list-1", "chat", NOW))


def test_a_file_that_is_no_database_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "candela.db").write_text("garbage, and more of it than a header has" * 10)
    with pytest.raises(DatabaseUnusable, match=r"candela\.db cannot be used \(file is not a database\)"):
        migrate(f"sqlite:///{tmp_path / 'candela.db'}")


def test_a_database_that_a_newer_version_made_is_a_typed_error(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'candela.db'}"
    migrate(url)
    with contextlib.closing(sqlite3.connect(tmp_path / "candela.db", isolation_level=None)) as raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999_future'")
    with pytest.raises(DatabaseUnusable, match="9999_future"):
        migrate(url)
