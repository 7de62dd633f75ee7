"""Tenants and API keys."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from common.errors import InvalidInput
from storage import keys
from storage.errors import KeyNotFound, NameTaken, TenantNotFound
from storage.records import Scope
from storage.tables import api_keys
from tests.support.storage_rows import NOW, a_tenant


def test_a_secret_finds_its_key(conn, tenant):
    key, secret = keys.create_key(conn, tenant.id, "laptop", [Scope.INFERENCE], NOW)
    assert keys.find_key(conn, secret) == key


@pytest.mark.parametrize(
    "change", [lambda s: s[:-1], lambda s: s + "x", str.upper, lambda _: "", lambda _: "ck_"]
)
def test_another_secret_finds_nothing(conn, tenant, change):
    _, secret = keys.create_key(conn, tenant.id, "laptop", [Scope.INFERENCE], NOW)
    assert keys.find_key(conn, change(secret)) is None


def test_a_secret_is_not_stored(conn, tenant):
    _, secret = keys.create_key(conn, tenant.id, "laptop", [Scope.INFERENCE], NOW)
    stored = conn.execute(sa.select(api_keys)).one()
    assert not any(secret[10:] in str(value) for value in stored)


def test_a_key_shows_the_start_of_its_secret(conn, tenant):
    key, secret = keys.create_key(conn, tenant.id, "laptop", [Scope.READ], NOW)
    assert secret.startswith(key.prefix)
    assert key.prefix.startswith("ck_")
    assert len(secret) > len(key.prefix) + 30


def test_a_revoked_key_opens_nothing(conn, tenant):
    key, secret = keys.create_key(conn, tenant.id, "laptop", [Scope.READ], NOW)
    keys.revoke_key(conn, tenant.id, key.id, NOW + 1)
    assert keys.find_key(conn, secret) is None


def test_revoking_again_keeps_the_first_time(conn, tenant):
    key, _ = keys.create_key(conn, tenant.id, "laptop", [Scope.READ], NOW)
    keys.revoke_key(conn, tenant.id, key.id, NOW + 1)
    assert keys.revoke_key(conn, tenant.id, key.id, NOW + 2).revoked_at == NOW + 1


def test_a_tenant_can_not_revoke_the_key_of_another(conn, tenant):
    key, secret = keys.create_key(conn, tenant.id, "laptop", [Scope.READ], NOW)
    other = a_tenant(conn, "other")
    with pytest.raises(KeyNotFound):
        keys.revoke_key(conn, other.id, key.id, NOW)
    assert keys.find_key(conn, secret) is not None


def test_keys_are_listed_newest_first_within_their_tenant(conn, tenant):
    other = a_tenant(conn, "other")
    keys.create_key(conn, other.id, "theirs", [Scope.READ], NOW)
    first, _ = keys.create_key(conn, tenant.id, "first", [Scope.READ], NOW)
    second, _ = keys.create_key(conn, tenant.id, "second", [Scope.READ], NOW + 1)
    assert keys.list_keys(conn, tenant.id) == (second, first)


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        ([Scope.ADMIN], {Scope.ADMIN, Scope.INFERENCE, Scope.READ}),
        ([Scope.INFERENCE], {Scope.INFERENCE}),
        ([Scope.READ], {Scope.READ}),
        ([Scope.INFERENCE, Scope.READ], {Scope.INFERENCE, Scope.READ}),
    ],
)
def test_scopes_allow_what_they_name_and_admin_all(conn, tenant, scopes, allowed):
    key, _ = keys.create_key(conn, tenant.id, "k", scopes, NOW)
    assert {scope for scope in Scope if key.allows(scope)} == allowed


@pytest.mark.parametrize(("name", "scopes"), [("k", []), ("", [Scope.READ]), ("n" * 101, [Scope.READ])])
def test_a_key_needs_a_scope_and_a_name(conn, tenant, name, scopes):
    with pytest.raises(InvalidInput):
        keys.create_key(conn, tenant.id, name, scopes, NOW)


def test_the_first_start_makes_one_admin_key(conn):
    secret = keys.ensure_admin(conn, NOW)
    key = keys.find_key(conn, secret)
    assert key.scopes == {Scope.ADMIN}
    assert keys.get_tenant(conn, key.tenant_id).name == keys.DEFAULT_TENANT


def test_a_later_start_makes_none(conn):
    keys.ensure_admin(conn, NOW)
    assert keys.ensure_admin(conn, NOW + 1) is None


def test_a_start_after_the_last_admin_key_was_revoked_makes_a_new_one(conn):
    key = keys.find_key(conn, keys.ensure_admin(conn, NOW))
    keys.revoke_key(conn, key.tenant_id, key.id, NOW)
    assert keys.find_key(conn, keys.ensure_admin(conn, NOW + 1)) is not None


def test_processes_that_start_at_once_make_one_admin_key(db):
    def start(_: int) -> str | None:
        with db.write() as conn:
            return keys.ensure_admin(conn, NOW)

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(start, range(8)))
    assert sum(secret is not None for secret in made) == 1


def test_a_tenants_name_is_taken_once(conn, tenant):
    with pytest.raises(NameTaken):
        a_tenant(conn, tenant.name)


def test_a_spend_cap_can_be_set_and_lifted(conn, tenant):
    keys.set_tenant_spend_cap(conn, tenant.id, 5)
    assert keys.get_tenant(conn, tenant.id).spend_cap_nano_usd == 5
    keys.set_tenant_spend_cap(conn, tenant.id, None)
    assert keys.get_tenant(conn, tenant.id).spend_cap_nano_usd is None


def test_an_unknown_tenant_is_an_error(conn):
    with pytest.raises(TenantNotFound):
        keys.get_tenant(conn, "ten_none")
    with pytest.raises(TenantNotFound):
        keys.set_tenant_spend_cap(conn, "ten_none", 5)
