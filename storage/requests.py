"""One row per API request: who, what, how it ended, how many tokens. Never the prompt or the answer."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from storage.errors import RequestNotFound
from storage.records import RequestRow, RequestStatus, TokenCounts
from storage.tables import requests


def open_request(
    conn: Connection,
    request_id: str,
    tenant_id: str,
    *,
    model: str,
    endpoint: str,
    is_stream: bool,
    now: float,
    api_key_id: str | None = None,
    deployment_id: str | None = None,
    client_request_id: str | None = None,
) -> None:
    """Record a request as it starts. `client_request_id` is the caller's own, kept for the log only."""
    conn.execute(
        sa.insert(requests).values(
            id=request_id,
            tenant_id=tenant_id,
            api_key_id=api_key_id,
            client_request_id=client_request_id,
            deployment_id=deployment_id,
            model=model,
            endpoint=endpoint,
            is_stream=is_stream,
            status=RequestStatus.OPEN,
            prompt_tokens=0,
            cached_tokens=0,
            completion_tokens=0,
            created_at=now,
        )
    )


def finish_request(
    conn: Connection,
    request_id: str,
    status: RequestStatus,
    *,
    http_status: int,
    counts: TokenCounts,
    now: float,
    error_code: str | None = None,
    replica_id: str | None = None,
    first_token_at: float | None = None,
) -> bool:
    """Record how a request ended; False when it had ended before (the first end stands)."""
    done = conn.execute(
        sa.update(requests)
        .where(requests.c.id == request_id, requests.c.status == RequestStatus.OPEN)
        .values(
            status=status,
            http_status=http_status,
            error_code=error_code,
            replica_id=replica_id,
            prompt_tokens=counts.prompt_tokens,
            cached_tokens=counts.cached_tokens,
            completion_tokens=counts.completion_tokens,
            first_token_at=first_token_at,
            finished_at=now,
        )
    )
    return done.rowcount == 1


def get_request(conn: Connection, tenant_id: str, request_id: str) -> RequestRow:
    """Raises: RequestNotFound: also for another tenant's."""
    mine = sa.and_(requests.c.tenant_id == tenant_id, requests.c.id == request_id)
    row = conn.execute(sa.select(requests).where(mine)).mappings().first()
    if row is None:
        raise RequestNotFound(request_id)
    return _request(row)


def list_requests(
    conn: Connection,
    tenant_id: str,
    *,
    limit: int = 100,
    before: str | None = None,
    deployment_id: str | None = None,
) -> tuple[RequestRow, ...]:
    """Newest first. `before` is the id of the last row of the page before."""
    query = sa.select(requests).where(requests.c.tenant_id == tenant_id)
    if before is not None:
        query = query.where(requests.c.id < before)
    if deployment_id is not None:
        query = query.where(requests.c.deployment_id == deployment_id)
    return tuple(
        _request(row) for row in conn.execute(query.order_by(requests.c.id.desc()).limit(limit)).mappings()
    )


def _request(row: Any) -> RequestRow:
    return RequestRow(
        id=row["id"],
        tenant_id=row["tenant_id"],
        api_key_id=row["api_key_id"],
        client_request_id=row["client_request_id"],
        deployment_id=row["deployment_id"],
        model=row["model"],
        endpoint=row["endpoint"],
        is_stream=row["is_stream"],
        status=RequestStatus(row["status"]),
        http_status=row["http_status"],
        error_code=row["error_code"],
        replica_id=row["replica_id"],
        counts=TokenCounts(row["prompt_tokens"], row["completion_tokens"], row["cached_tokens"]),
        created_at=row["created_at"],
        first_token_at=row["first_token_at"],
        finished_at=row["finished_at"],
    )
