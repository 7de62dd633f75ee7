"""Tenants and API keys: made, found by secret, revoked. A secret is stored only as its sha256."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common.errors import InvalidInput
from common.ids import Kind, new_id
from storage.errors import KeyNotFound, NameTaken, TenantNotFound
from storage.records import ApiKey, Scope, Tenant
from storage.tables import api_keys, tenants
from storage.write import insert_if_absent

SECRET_PREFIX = "ck_"
DEFAULT_TENANT = "default"
_SHOWN = 10


def create_tenant(
    conn: Connection, name: str, now: float, *, spend_cap_nano_usd: int | None = None
) -> Tenant:
    """Raises: NameTaken."""
    tenant = Tenant(new_id(Kind.TENANT), name, spend_cap_nano_usd, now)
    if not insert_if_absent(conn, tenants, asdict(tenant), [tenants.c.name]):
        raise NameTaken("tenant", name)
    return tenant


def get_tenant(conn: Connection, tenant_id: str) -> Tenant:
    """Raises: TenantNotFound."""
    row = conn.execute(sa.select(tenants).where(tenants.c.id == tenant_id)).mappings().first()
    if row is None:
        raise TenantNotFound(tenant_id)
    return Tenant(**row)


def list_tenants(conn: Connection) -> tuple[Tenant, ...]:
    rows = conn.execute(sa.select(tenants).order_by(tenants.c.created_at, tenants.c.id)).mappings()
    return tuple(Tenant(**row) for row in rows)


def set_tenant_spend_cap(conn: Connection, tenant_id: str, spend_cap_nano_usd: int | None) -> None:
    """Raises: TenantNotFound."""
    done = conn.execute(
        sa.update(tenants).where(tenants.c.id == tenant_id).values(spend_cap_nano_usd=spend_cap_nano_usd)
    )
    if done.rowcount == 0:
        raise TenantNotFound(tenant_id)


def create_key(
    conn: Connection,
    tenant_id: str,
    name: str,
    scopes: Iterable[Scope],
    now: float,
    *,
    spend_cap_nano_usd: int | None = None,
) -> tuple[ApiKey, str]:
    """Make a key; the secret is returned once and can't be read again.

    Raises: InvalidInput: no scope, or a name that is empty or longer than 100 characters.
    """
    wanted = frozenset(Scope(s) for s in scopes)
    if not wanted:
        raise InvalidInput(f"a key needs at least one scope of {', '.join(Scope)}", param="scopes")
    if not 1 <= len(name) <= 100:
        raise InvalidInput("a key's name has 1 to 100 characters", param="name")
    secret = SECRET_PREFIX + secrets.token_urlsafe(32)
    row: dict[str, Any] = {
        "id": new_id(Kind.KEY),
        "tenant_id": tenant_id,
        "name": name,
        "prefix": secret[:_SHOWN],
        "scopes": " ".join(sorted(wanted)),
        "spend_cap_nano_usd": spend_cap_nano_usd,
        "spent_nano_usd": 0,
        "created_at": now,
        "revoked_at": None,
    }
    conn.execute(sa.insert(api_keys).values(**row, secret_sha256=_digest(secret)))
    return _key(row), secret


def find_key(conn: Connection, secret: str) -> ApiKey | None:
    """The key that `secret` opens; None when there is none or it was revoked."""
    row = (
        conn.execute(
            sa.select(api_keys).where(
                api_keys.c.secret_sha256 == _digest(secret), api_keys.c.revoked_at.is_(None)
            )
        )
        .mappings()
        .first()
    )
    return None if row is None else _key(row)


def list_keys(conn: Connection, tenant_id: str) -> tuple[ApiKey, ...]:
    """Newest first, revoked ones included."""
    rows = conn.execute(
        sa.select(api_keys)
        .where(api_keys.c.tenant_id == tenant_id)
        .order_by(api_keys.c.created_at.desc(), api_keys.c.id.desc())
    ).mappings()
    return tuple(_key(row) for row in rows)


def revoke_key(conn: Connection, tenant_id: str, key_id: str, now: float) -> ApiKey:
    """Close a key for ever; revoking it again keeps the first time.

    Raises: KeyNotFound.
    """
    mine = sa.and_(api_keys.c.tenant_id == tenant_id, api_keys.c.id == key_id)
    conn.execute(sa.update(api_keys).where(mine, api_keys.c.revoked_at.is_(None)).values(revoked_at=now))
    row = conn.execute(sa.select(api_keys).where(mine)).mappings().first()
    if row is None:
        raise KeyNotFound(key_id)
    return _key(row)


def ensure_admin(conn: Connection, now: float) -> str | None:
    """Make the default tenant and its admin key when no live admin key exists; the secret, or None.

    Write the secret down before the transaction commits: it can't be read again.
    """
    tenant = Tenant(new_id(Kind.TENANT), DEFAULT_TENANT, None, now)
    insert_if_absent(conn, tenants, asdict(tenant), [tenants.c.name])
    tenant_id = conn.execute(
        sa.select(tenants.c.id).where(tenants.c.name == DEFAULT_TENANT).with_for_update()
    ).scalar_one()
    if any(Scope.ADMIN in key.scopes and key.revoked_at is None for key in list_keys(conn, tenant_id)):
        return None
    _, secret = create_key(conn, tenant_id, "admin", [Scope.ADMIN], now)
    return secret


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _key(row: Any) -> ApiKey:
    return ApiKey(
        id=row["id"],
        tenant_id=row["tenant_id"],
        name=row["name"],
        prefix=row["prefix"],
        scopes=frozenset(Scope(s) for s in row["scopes"].split()),
        spend_cap_nano_usd=row["spend_cap_nano_usd"],
        spent_nano_usd=row["spent_nano_usd"],
        created_at=row["created_at"],
        revoked_at=row["revoked_at"],
    )
