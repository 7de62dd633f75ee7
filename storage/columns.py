"""Column types that mean the same on SQLite (STRICT) and PostgreSQL. Owns no table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""A 64-bit integer: counts, bytes, nano-USD."""

REAL: TypeEngine[float] = sa.Double().with_variant(sa.REAL(), "sqlite")
"""A 64-bit float: Unix seconds and durations; never money."""


class Flag(TypeDecorator[bool]):
    """A boolean; SQLite's STRICT tables have none, so it is 0 or 1 there."""

    impl = sa.Boolean
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        kind: TypeEngine[Any] = sa.Integer() if dialect.name == "sqlite" else sa.Boolean()
        return dialect.type_descriptor(kind)

    def process_bind_param(self, value: bool | None, dialect: Dialect) -> Any:
        return int(value) if value is not None and dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> bool | None:
        return None if value is None else bool(value)


class Json(TypeDecorator[Mapping[str, Any]]):
    """A JSON object kept as text: the same bytes on every database, key order included."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Mapping[str, Any] | None, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(dict(value), separators=(",", ":"), ensure_ascii=False)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Mapping[str, Any] | None:
        if value is None:
            return None
        body: dict[str, Any] = json.loads(value)
        return body
