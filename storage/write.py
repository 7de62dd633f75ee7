"""The one dialect seam of our queries: INSERT ... ON CONFLICT DO NOTHING on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite


def insert_if_absent(
    conn: Connection,
    table: sa.Table,
    row: Mapping[str, Any],
    unique: Sequence[sa.Column[Any]],
    where: sa.ColumnElement[bool] | sa.TextClause | None = None,
) -> bool:
    """Insert `row` unless the `unique` columns are taken; whether it was inserted.

    `where` is the predicate of a partial unique index. On PostgreSQL a racing insert is waited for.
    """
    insert = sqlite.insert if conn.dialect.name == "sqlite" else postgresql.insert
    statement = (
        insert(table)
        .values(**row)
        .on_conflict_do_nothing(index_elements=list(unique), index_where=where)
        .returning(sa.literal(1))  # an INSERT's rowcount is not reported by every driver
    )
    return conn.execute(statement).first() is not None
