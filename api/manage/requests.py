"""`/api/v1/requests`: one row per API request, with its token counts and times; never a prompt or an
answer.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from api import routing
from api.auth import Reader
from api.manage import show
from api.manage.schema import Page, RequestBody
from api.services import Given
from storage import requests

router = routing.router()


@router.get("/api/v1/requests", response_model=Page[RequestBody], tags=["requests"])
async def list_requests(
    given: Given,
    who: Reader,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: str | None = None,
) -> Page[RequestBody]:
    """Newest first; `before` is the last id of the page before."""
    found = await given.store.read(requests.list_requests, who.tenant_id, limit=limit, before=before)
    return Page[RequestBody](data=[show.request(r) for r in found])


@router.get("/api/v1/requests/{request_id}", response_model=RequestBody, tags=["requests"])
async def get_request(request_id: str, given: Given, who: Reader) -> RequestBody:
    return show.request(await given.store.read(requests.get_request, who.tenant_id, request_id))
