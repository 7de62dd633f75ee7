"""The pages that only show: overview, models, jobs, requests, spend, playground, and their static files."""

from __future__ import annotations

import mimetypes
from datetime import date
from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from api.auth import Admin, Reader
from api.dashboard import data, forms
from api.dashboard.render import STATIC, page
from api.errors import error_response
from api.manage.jobs import ENDED
from api.manage.usage import period
from api.services import Given
from common.errors import NotFound
from storage import jobs, requests

router = forms.router()

_PAGE_ROWS = 50


@router.get("/dashboard/static/{name}")
async def static(name: str) -> Response:
    """The style sheet and scripts. Their addresses carry a digest, so they are kept for ever."""
    if name not in STATIC:
        return error_response(NotFound(f"no file {name!r:.80}"))
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(STATIC[name], media_type=kind, headers=headers)


@router.get("/favicon.ico")
async def favicon() -> Response:
    return Response(STATIC["candela.svg"], media_type="image/svg+xml")


@router.get("/dashboard")
async def overview(request: Request, given: Given, who: Reader) -> Response:
    found = await given.store.read(data.overview, who.tenant_id, given.clock())
    return page(request, "overview.html", found=found)


@router.get("/dashboard/models")
async def models(request: Request, given: Given, who: Reader) -> Response:
    return page(request, "models.html", rows=await given.store.read(data.model_rows, who.tenant_id))


@router.get("/dashboard/jobs")
async def job_list(request: Request, given: Given, who: Reader) -> Response:
    return page(request, "jobs.html", jobs=await given.store.read(jobs.list_jobs, who.tenant_id, _PAGE_ROWS))


@router.get("/dashboard/jobs/{job_id}")
async def job(request: Request, job_id: str, given: Given, who: Reader) -> Response:
    found = await given.store.read(data.job_page, who.tenant_id, job_id)
    return page(request, "job.html", found=found, is_over=found.job.state in ENDED)


@router.post("/dashboard/jobs/{job_id}/cancel")
async def cancel_job(request: Request, job_id: str, given: Given, who: Admin) -> Response:
    await forms.read_form(request)
    await given.store.write(jobs.cancel_job, who.tenant_id, job_id, given.clock())
    return forms.back_to(f"/dashboard/jobs/{job_id}")


@router.get("/dashboard/requests")
async def request_list(
    request: Request, given: Given, who: Reader, before: Annotated[str | None, Query()] = None
) -> Response:
    found = await given.store.read(requests.list_requests, who.tenant_id, limit=_PAGE_ROWS + 1, before=before)
    shown = found[:_PAGE_ROWS]
    older = shown[-1].id if len(found) > _PAGE_ROWS else None
    return page(request, "requests.html", requests=shown, older=older, is_first=before is None)


@router.get("/dashboard/spend")
async def spend(
    request: Request, given: Given, who: Reader, start: date | None = None, end: date | None = None
) -> Response:
    since, until = period(start, end, given.clock())
    return page(request, "spend.html", found=await given.store.read(data.spend, who.tenant_id, since, until))


@router.get("/dashboard/playground")
async def playground(request: Request, given: Given, who: Reader) -> Response:
    rows = await given.store.read(data.deployment_rows, who.tenant_id)
    chosen = request.query_params.get("model", "")
    return page(request, "playground.html", rows=rows, chosen=chosen)
