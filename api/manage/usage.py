"""`/api/v1/usage`: what was used and what it costs, read from the ledger and nowhere else."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import Annotated

from fastapi import Query

from api import routing
from api.auth import Reader
from api.manage.schema import UsageBody, UsageLine
from api.services import Given
from common.errors import InvalidInput
from storage import ledger

router = routing.router()

_DEFAULT_DAYS = 30
_MOST_DAYS = 366


@router.get("/api/v1/usage", response_model=UsageBody, tags=["usage"])
async def get_usage(
    given: Given,
    who: Reader,
    start: Annotated[date | None, Query(description="First day (UTC); by default 30 days ago")] = None,
    end: Annotated[date | None, Query(description="Day after the last (UTC); by default tomorrow")] = None,
    verify: Annotated[bool, Query(description="Recompute the whole ledger's chain, too")] = False,
) -> UsageBody:
    """Usage by day (UTC), model and meter within [start, end), with totals."""
    since, until = period(start, end, given.clock())
    lines = await given.store.read(
        ledger.usage_by_day_and_model, who.tenant_id, _instant(since), _instant(until)
    )
    quantities: Counter[str] = Counter()
    for line in lines:
        quantities[line.meter] += line.quantity
    is_intact = None
    if verify:
        is_intact = (await given.store.read(ledger.verify_chain, who.tenant_id)).is_intact
    return UsageBody(
        start=since.isoformat(),
        end=until.isoformat(),
        lines=[UsageLine.model_validate(line) for line in lines],
        quantities=dict(quantities),
        total_nano_usd=sum(line.amount_nano_usd for line in lines),
        chain_is_intact=is_intact,
    )


def period(start: date | None, end: date | None, now: float) -> tuple[date, date]:
    """Half-open [start, end) in days, UTC. Pure.

    Raises: InvalidInput: it is empty, or longer than a year.
    """
    until = end or datetime.fromtimestamp(now, UTC).date() + timedelta(days=1)
    since = start or until - timedelta(days=_DEFAULT_DAYS)
    if since >= until:
        raise InvalidInput(f"start {since} must lie before end {until}", param="start")
    if (until - since).days > _MOST_DAYS:
        raise InvalidInput(f"at most {_MOST_DAYS} days can be asked for at once", param="start")
    return since, until


def _instant(day: date) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
