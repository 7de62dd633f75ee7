"""`/api/v1/keys`: API keys. A secret is in the answer that makes it, and nowhere afterwards."""

from __future__ import annotations

from api import routing
from api.auth import Admin
from api.manage import show
from api.manage.schema import KeyBody, KeyWithSecret, NewKey, Page
from api.services import Given
from storage import keys
from storage.records import Scope

router = routing.router()

_DEFAULT = (Scope.INFERENCE, Scope.READ)


@router.post("/api/v1/keys", response_model=KeyWithSecret, status_code=201, tags=["keys"])
async def create_key(body: NewKey, given: Given, who: Admin) -> KeyWithSecret:
    cap = None if body.spend_cap_nano_usd is None else int(body.spend_cap_nano_usd)
    made, secret = await given.store.write(
        keys.create_key,
        who.tenant_id,
        body.name,
        body.scopes or _DEFAULT,
        given.clock(),
        spend_cap_nano_usd=cap,
    )
    return KeyWithSecret(**dict(show.key(made)), secret=secret)


@router.get("/api/v1/keys", response_model=Page[KeyBody], tags=["keys"])
async def list_keys(given: Given, who: Admin) -> Page[KeyBody]:
    """Newest first, revoked ones included."""
    found = await given.store.read(keys.list_keys, who.tenant_id)
    return Page[KeyBody](data=[show.key(k) for k in found])


@router.delete("/api/v1/keys/{key_id}", response_model=KeyBody, tags=["keys"])
async def revoke_key(key_id: str, given: Given, who: Admin) -> KeyBody:
    """Close a key for ever, at once. Revoking it again changes nothing."""
    return show.key(await given.store.write(keys.revoke_key, who.tenant_id, key_id, given.clock()))
