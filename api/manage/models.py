"""`/api/v1/models` and `/api/v1/revisions`: what a tenant has uploaded, and what became of it."""

from __future__ import annotations

from api import routing
from api.auth import Admin, Reader
from api.manage import show
from api.manage.schema import ModelBody, Page, RevisionBody
from api.services import Given
from storage import models, revisions
from storage.db import Connection
from storage.records import Revision

router = routing.router()


@router.get("/api/v1/models", response_model=Page[ModelBody], tags=["models"])
async def list_models(given: Given, who: Reader) -> Page[ModelBody]:
    """Models by name, each with its revisions, newest first."""
    return Page[ModelBody](data=await given.store.read(_all, who.tenant_id))


@router.get("/api/v1/models/{name}", response_model=ModelBody, tags=["models"])
async def get_model(name: str, given: Given, who: Reader) -> ModelBody:
    return await given.store.read(_one, who.tenant_id, name)


@router.delete("/api/v1/models/{name}", status_code=204, tags=["models"])
async def delete_model(name: str, given: Given, who: Admin) -> None:
    """Delete a model that no deployment serves: its revisions, artifacts and bytes, and its open jobs."""
    leftovers = await given.store.write(models.delete_model, who.tenant_id, name, given.clock())
    await given.files.delete(leftovers)


@router.get("/api/v1/revisions/{revision_id}", response_model=RevisionBody, tags=["models"])
async def get_revision(revision_id: str, given: Given, who: Reader) -> RevisionBody:
    found, name = await given.store.read(_revision, who.tenant_id, revision_id)
    return show.revision(found, name)


def _all(conn: Connection, tenant_id: str) -> list[ModelBody]:
    found = models.list_models(conn, tenant_id)
    return [show.model(m, revisions.list_revisions(conn, tenant_id, m.id)) for m in found]


def _one(conn: Connection, tenant_id: str, name: str) -> ModelBody:
    found = models.get_model(conn, tenant_id, name)
    return show.model(found, revisions.list_revisions(conn, tenant_id, found.id))


def _revision(conn: Connection, tenant_id: str, revision_id: str) -> tuple[Revision, str]:
    found = revisions.get_revision(conn, tenant_id, revision_id)
    names = {m.id: m.name for m in models.list_models(conn, tenant_id)}
    return found, names.get(found.model_id, "")
