"""The pages that change something: deployments and keys."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from api.auth import Admin, Reader
from api.dashboard import data, forms
from api.dashboard.forms import Form
from api.dashboard.render import page
from api.manage.schema import NAME_PATTERN
from api.services import Given
from common.errors import InvalidInput
from storage import deployments, keys, models
from storage.db import Connection
from storage.errors import RevisionNotReady
from storage.records import Deployment, ScalingPolicy, Scope

router = forms.router()

_WINDOWS_S = (("1 h", 3600.0), ("6 h", 21_600.0), ("24 h", 86_400.0), ("7 d", 604_800.0))


@router.get("/dashboard/deployments")
async def deployment_list(request: Request, given: Given, who: Reader) -> Response:
    rows = await given.store.read(data.deployment_rows, who.tenant_id)
    ready = await given.store.read(data.ready_models, who.tenant_id)
    return page(request, "deployments.html", rows=rows, ready_models=ready, policy=ScalingPolicy())


@router.post("/dashboard/deployments")
async def create(request: Request, given: Given, who: Admin) -> Response:
    form = await forms.read_form(request)
    ceiling = given.settings.kv_ceiling_tokens
    made = await given.store.write(_create, who.tenant_id, form, ceiling, given.clock())
    if made.policy.min_replicas:
        await given.leases.wake(made.id)
    return forms.back_to(f"/dashboard/deployments/{made.name}")


@router.get("/dashboard/deployments/{name}")
async def deployment(
    request: Request,
    name: str,
    given: Given,
    who: Reader,
    window_s: Annotated[float, Query(alias="window", gt=0, le=2_678_400)] = 3600.0,
) -> Response:
    found = await given.store.read(data.deployment_page, who.tenant_id, name, window_s, given.clock())
    return page(request, "deployment.html", found=found, windows=_WINDOWS_S)


@router.post("/dashboard/deployments/{name}")
async def change(request: Request, name: str, given: Given, who: Admin) -> Response:
    form = await forms.read_form(request)
    changed = await given.store.write(_change, who.tenant_id, name, form, given.clock())
    if changed.policy.min_replicas:
        await given.leases.wake(changed.id)
    return forms.back_to(f"/dashboard/deployments/{name}")


@router.post("/dashboard/deployments/{name}/delete")
async def delete(request: Request, name: str, given: Given, who: Admin) -> Response:
    await forms.read_form(request)
    gone = await given.store.write(deployments.delete_deployment, who.tenant_id, name, given.clock())
    await given.leases.wake(gone.id)
    return forms.back_to("/dashboard/deployments")


@router.get("/dashboard/keys")
async def key_list(request: Request, given: Given, who: Admin) -> Response:
    found = await given.store.read(keys.list_keys, who.tenant_id)
    return page(request, "keys.html", keys=found, secret=None, scopes=tuple(Scope))


@router.post("/dashboard/keys")
async def create_key(request: Request, given: Given, who: Admin) -> Response:
    """Make a key; its secret is in this answer only."""
    form = await forms.read_form(request)
    known = {scope.value for scope in Scope}
    if unknown := [s for s in form.all("scope") if s not in known]:
        raise InvalidInput(f"no such scope: {unknown[0]!r:.40}", param="scope")
    scopes = [Scope(s) for s in form.all("scope")]
    _, secret = await given.store.write(
        keys.create_key, who.tenant_id, form.text("name"), scopes, given.clock()
    )
    found = await given.store.read(keys.list_keys, who.tenant_id)
    return page(request, "keys.html", keys=found, secret=secret, scopes=tuple(Scope))


@router.post("/dashboard/keys/{key_id}/revoke")
async def revoke_key(request: Request, key_id: str, given: Given, who: Admin) -> Response:
    await forms.read_form(request)
    await given.store.write(keys.revoke_key, who.tenant_id, key_id, given.clock())
    return forms.back_to("/dashboard/keys")


def _create(conn: Connection, tenant_id: str, form: Form, kv_ceiling_tokens: int, now: float) -> Deployment:
    model = models.get_model(conn, tenant_id, form.text("model"))
    revision = models.latest_ready_revision(conn, tenant_id, model.id)
    if revision is None:
        raise RevisionNotReady(model.name, "not compiled")
    name = form.text("name") or model.name
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise InvalidInput("a name has letters, digits, dots, dashes and underscores", param="name")
    policy = _policy(form, ScalingPolicy())
    return deployments.create_deployment(conn, tenant_id, name, revision, policy, kv_ceiling_tokens, now)


def _change(conn: Connection, tenant_id: str, name: str, form: Form, now: float) -> Deployment:
    found = deployments.get_deployment(conn, tenant_id, name)
    return deployments.update_policy(conn, tenant_id, name, _policy(form, found.policy), now)


def _policy(form: Form, before: ScalingPolicy) -> ScalingPolicy:
    return replace(
        before,
        min_replicas=form.whole("min_replicas"),
        max_replicas=form.whole("max_replicas"),
        idle_timeout_s=form.number("idle_timeout_s"),
    )
