"""Running the migration chain that ships inside the package. Alembic is imported only when it is needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import make_url

from storage.errors import DatabaseUnusable

if TYPE_CHECKING:
    from alembic.config import Config

_MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK = 7_236_150_021  # PostgreSQL advisory lock: one migrator at a time


def migrate(url: str) -> None:
    """Bring the database at `url` to the newest revision; a no-op when it is there.

    Safe when several processes call it at once: the second waits, then finds nothing to do. A failed
    migration leaves the schema as it was.

    Raises: DatabaseUnusable: it is away or full, its file is no database, or a newer version of us made it.
    """
    from alembic.util import CommandError

    try:
        _upgrade(url)
    except (sa.exc.DBAPIError, CommandError) as error:
        raise DatabaseUnusable(
            make_url(url).render_as_string(), str(getattr(error, "orig", error))
        ) from error


def migrations_current(url: str) -> bool:
    """Whether the database at `url` is at the newest revision this code knows."""
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    head = ScriptDirectory.from_config(_config()).get_current_head()
    engine = _engine(url)
    try:
        with engine.connect() as conn:
            return MigrationContext.configure(conn).get_current_revision() == head
    finally:
        engine.dispose()


def _upgrade(url: str) -> None:
    from alembic import command

    engine = _engine(url)
    try:
        with engine.connect() as conn:
            if conn.dialect.name == "sqlite":
                conn.exec_driver_sql("BEGIN IMMEDIATE")
            else:
                conn.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            config = _config()
            config.attributes["connection"] = conn
            command.upgrade(config, "head")
            conn.commit()
    finally:
        engine.dispose()


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _engine(url: str) -> sa.Engine:
    engine = sa.create_engine(make_url(url), poolclass=sa.NullPool)
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", lambda raw, _record: _prepare(raw))
    return engine


def _prepare(raw: Any) -> None:
    raw.isolation_level = None  # sqlite3 then adds no BEGIN or COMMIT of its own around DDL
    raw.execute("PRAGMA busy_timeout = 30000")
    raw.execute("PRAGMA journal_mode = WAL")
