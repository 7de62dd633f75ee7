"""The admin key: made at the first start, written to `client.json` before the database commits to it."""

from __future__ import annotations

from candela.client.config import ClientConfig, read_config, write_config
from candela.client.errors import NotConfigured
from storage import keys
from storage.db import Connection, Database
from storage.records import Scope

from .data_dir import DataDir


def ensure_client_file(data_dir: DataDir, database_url: str, url: str, now: float) -> bool:
    """Make sure that `client.json` holds this platform's address and a key that works.

    A lost file is replaced by one with a new key: whoever owns the data directory owns the platform.

    Returns:
        Whether a key was made.
    """
    database = Database(database_url)
    try:
        with database.write() as conn:
            made = keys.ensure_admin(conn, now)
            key = made or _known_key(conn, data_dir) or _another_key(conn, now)
            is_new = key != _stored_key(data_dir)
            write_config(data_dir.client_file, ClientConfig(url, key))
    finally:
        database.close()
    return is_new


def _known_key(conn: Connection, data_dir: DataDir) -> str | None:
    stored = _stored_key(data_dir)
    return stored if stored is not None and keys.find_key(conn, stored) is not None else None


def _stored_key(data_dir: DataDir) -> str | None:
    try:
        return read_config(data_dir.client_file).api_key
    except NotConfigured:
        return None


def _another_key(conn: Connection, now: float) -> str:
    tenant = next(t for t in keys.list_tenants(conn) if t.name == keys.DEFAULT_TENANT)
    _, secret = keys.create_key(conn, tenant.id, "admin", [Scope.ADMIN], now)
    return secret
