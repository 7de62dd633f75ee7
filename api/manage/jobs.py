"""`/api/v1/jobs`: compile jobs, their log, and the log as it grows (server-sent events)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Header, Query, Request
from starlette.responses import Response, StreamingResponse

from api import routing
from api.auth import Admin, Reader
from api.manage import show
from api.manage.schema import JobBody, JobEventBody, Page
from api.openai import sse
from api.services import Given, Services
from storage import jobs
from storage.records import JobState

router = routing.router()

ENDED = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)
_POLL_S = 0.25
_COMMENT_EVERY_S = 15.0


@router.get("/api/v1/jobs", response_model=Page[JobBody], tags=["jobs"])
async def list_jobs(
    given: Given,
    who: Reader,
    model: str | None = None,
    state: JobState | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: str | None = None,
) -> Page[JobBody]:
    """Newest first; `before` is the last id of the page before. The filters choose within the page."""
    found = await given.store.read(jobs.list_jobs, who.tenant_id, limit, before)
    wanted = [j for j in found if model in (None, j.model_name) and state in (None, j.state)]
    return Page[JobBody](data=[show.job(j) for j in wanted])


@router.get("/api/v1/jobs/{job_id}", response_model=JobBody, tags=["jobs"])
async def get_job(job_id: str, given: Given, who: Reader) -> JobBody:
    return show.job(await given.store.read(jobs.get_job, who.tenant_id, job_id))


@router.post("/api/v1/jobs/{job_id}/cancel", response_model=JobBody, tags=["jobs"])
async def cancel_job(job_id: str, given: Given, who: Admin) -> JobBody:
    """Cancel at once; a running compile stops at its next step. Cancelling again changes nothing."""
    return show.job(await given.store.write(jobs.cancel_job, who.tenant_id, job_id, given.clock()))


@router.get(
    "/api/v1/jobs/{job_id}/events",
    response_model=Page[JobEventBody],
    tags=["jobs"],
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def job_events(
    job_id: str,
    request: Request,
    given: Given,
    who: Reader,
    after: Annotated[int, Query(ge=0)] = 0,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """The job's log after event `after`, oldest first. With `Accept: text/event-stream` it is followed:
    `state`, `progress` and `log` events, until the job has ended. `Last-Event-ID` resumes.
    """
    await given.store.read(jobs.get_job, who.tenant_id, job_id)
    if last_event_id is not None and last_event_id.isdigit():
        after = int(last_event_id)
    if "text/event-stream" in request.headers.get("accept", ""):
        return StreamingResponse(_follow(given, who.tenant_id, job_id, after), headers=sse.HEADERS)
    found = await given.store.read(jobs.events_after, who.tenant_id, job_id, after)
    page = Page[JobEventBody](data=[show.job_event(e) for e in found])
    return Response(page.model_dump_json(), media_type="application/json")


async def _follow(given: Services, tenant_id: str, job_id: str, after: int) -> AsyncIterator[bytes]:
    quiet_s = 0.0
    while True:
        job = await given.store.read(jobs.get_job, tenant_id, job_id)
        events = await given.store.read(jobs.events_after, tenant_id, job_id, after)
        for event in events:
            after, quiet_s = event.seq, 0.0
            yield sse.named_event(event.kind, show.job_event(event).model_dump(mode="json"), event.seq)
        if job.state in ENDED and not events:
            return
        if quiet_s >= _COMMENT_EVERY_S:
            quiet_s = 0.0
            yield sse.comment("still here")
        if not events:
            await asyncio.sleep(_POLL_S)
            quiet_s += _POLL_S
