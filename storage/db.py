"""The database handle: `read()` and `write()` transactions on SQLite or PostgreSQL. Knows no table.

SQLite runs in WAL mode with foreign keys on; a write takes the write lock at once (BEGIN IMMEDIATE), so
that it never fails half-way with "database is locked" after having read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, event
from sqlalchemy.engine import make_url

from storage.upgrade import migrate, migrations_current

__all__ = ["Connection", "Database", "migrate", "migrations_current"]

_WRITES = "candela_writes"
_BUSY_TIMEOUT_S = 30.0


class Database:
    """One pool of connections. Safe to share between threads; every transaction is short.

    `url` is SQLAlchemy's, such as `sqlite:////var/lib/candela/candela.db` or `postgresql+psycopg://...`.
    """

    def __init__(self, url: str, *, pool_size: int = 8, max_overflow: int = 40) -> None:
        self.url = make_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self._engine = sa.create_engine(
            self.url, pool_size=pool_size, max_overflow=max_overflow, pool_pre_ping=not self.is_sqlite
        )
        # SQLite has one writer at a time: threads of this process queue here, fairly, instead of polling
        # the file.
        self._writer = threading.Lock() if self.is_sqlite else nullcontext()
        self._inside = threading.local()
        if self.is_sqlite:
            event.listen(self._engine, "connect", _prepare_sqlite)
            event.listen(self._engine, "begin", _begin_sqlite)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent view, as of its first query; nothing written in it is kept."""
        with self._engine.connect() as conn:
            if not self.is_sqlite:
                conn.execution_options(isolation_level="REPEATABLE READ")
            yield conn
            conn.rollback()

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that commits when the block ends and rolls back when it raises. Don't nest it."""
        assert not getattr(self._inside, "is_writing", False), "a write() inside a write() waits for itself"
        with self._writer, self._engine.connect() as conn:
            conn.execution_options(**{_WRITES: True})
            self._inside.is_writing = True
            try:
                with conn.begin():
                    yield conn
            finally:
                self._inside.is_writing = False

    def close(self) -> None:
        """Close the pooled connections."""
        self._engine.dispose()


def is_writing(conn: Connection) -> bool:
    """Whether `conn` came from `write()`."""
    return bool(conn.get_execution_options().get(_WRITES, False))


def _prepare_sqlite(dbapi_connection: Any, _record: Any) -> None:
    dbapi_connection.isolation_level = None  # we say BEGIN ourselves, in _begin_sqlite
    cursor = dbapi_connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {int(_BUSY_TIMEOUT_S * 1000)}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin_sqlite(conn: Connection) -> None:
    conn.exec_driver_sql("BEGIN IMMEDIATE" if is_writing(conn) else "BEGIN")
