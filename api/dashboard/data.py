"""What the pages show, read in one transaction each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from api.dashboard.charts import BarChart, StepChart, bar_chart, step_chart
from api.dashboard.format import count, usd
from api.manage.show import status
from common.wire import ReplicaState
from storage import deployments, jobs, ledger, models, replicas, requests, revisions
from storage.db import Connection
from storage.ledger import UsageLine
from storage.records import Deployment, Job, JobEvent, Meter, Model, Replica, RequestRow, Revision
from storage.replica_chart import ready_seconds, replica_counts

TOKENS = (Meter.PROMPT_TOKENS, Meter.CACHED_TOKENS, Meter.COMPLETION_TOKENS)


@dataclass(frozen=True, slots=True)
class DeploymentRow:
    deployment: Deployment
    replicas: tuple[Replica, ...]

    @property
    def status(self) -> str:
        return status(self.deployment, self.replicas)

    @property
    def ready(self) -> int:
        return sum(replica.state is ReplicaState.READY for replica in self.replicas)


@dataclass(frozen=True, slots=True)
class Overview:
    month_nano_usd: int
    today_tokens: int
    rows: tuple[DeploymentRow, ...]
    requests: tuple[RequestRow, ...]
    jobs: tuple[Job, ...]
    chart: BarChart

    @property
    def ready_replicas(self) -> int:
        return sum(row.ready for row in self.rows)

    @property
    def starting_replicas(self) -> int:
        return sum(r.state is ReplicaState.STARTING for row in self.rows for r in row.replicas)


@dataclass(frozen=True, slots=True)
class ModelRow:
    model: Model
    revisions: tuple[Revision, ...]
    deployed_as: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobPage:
    job: Job
    events: tuple[JobEvent, ...]


@dataclass(frozen=True, slots=True)
class DeploymentPage:
    row: DeploymentRow
    revision: Revision
    chart: StepChart
    window_s: float
    ready_s: float
    gone: tuple[Replica, ...]


@dataclass(frozen=True, slots=True)
class ModelSpend:
    """One model's totals within a period."""

    model: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    seconds: int
    amount_nano_usd: int


@dataclass(frozen=True, slots=True)
class Spend:
    start: date
    end: date
    lines: tuple[UsageLine, ...]
    by_model: tuple[ModelSpend, ...]
    total_nano_usd: int
    ever_nano_usd: int
    chart: BarChart


def overview(conn: Connection, tenant_id: str, now: float) -> Overview:
    today = datetime.fromtimestamp(now, UTC).date()
    month = _lines(conn, tenant_id, today.replace(day=1), today + timedelta(days=1))
    fortnight = _lines(conn, tenant_id, today - timedelta(days=13), today + timedelta(days=1))
    return Overview(
        month_nano_usd=sum(line.amount_nano_usd for line in month),
        today_tokens=_tokens_on(month, today),
        rows=deployment_rows(conn, tenant_id),
        requests=requests.list_requests(conn, tenant_id, limit=8),
        jobs=jobs.list_jobs(conn, tenant_id, 5),
        chart=spend_chart(fortnight, today - timedelta(days=13), today + timedelta(days=1)),
    )


def deployment_rows(conn: Connection, tenant_id: str) -> tuple[DeploymentRow, ...]:
    found = deployments.list_deployments(conn, tenant_id, include_deleting=True)
    return tuple(DeploymentRow(d, replicas.list_replicas(conn, d.id)) for d in found)


def model_rows(conn: Connection, tenant_id: str) -> tuple[ModelRow, ...]:
    names: dict[str, list[str]] = {}
    for deployment in deployments.list_deployments(conn, tenant_id):
        names.setdefault(deployment.model_id, []).append(deployment.name)
    return tuple(
        ModelRow(m, revisions.list_revisions(conn, tenant_id, m.id), tuple(names.get(m.id, ())))
        for m in models.list_models(conn, tenant_id)
    )


def ready_models(conn: Connection, tenant_id: str) -> tuple[str, ...]:
    """Names of models that can be deployed."""
    found = models.list_models(conn, tenant_id)
    return tuple(m.name for m in found if models.latest_ready_revision(conn, tenant_id, m.id) is not None)


def job_page(conn: Connection, tenant_id: str, job_id: str) -> JobPage:
    return JobPage(jobs.get_job(conn, tenant_id, job_id), jobs.events_after(conn, tenant_id, job_id))


def deployment_page(
    conn: Connection, tenant_id: str, name: str, window_s: float, now: float
) -> DeploymentPage:
    found = deployments.get_deployment(conn, tenant_id, name)
    since = now - window_s
    changes = replicas.replica_history(conn, tenant_id, since, now, found.id)
    gone = replicas.list_replicas(conn, found.id, [ReplicaState.GONE])
    return DeploymentPage(
        row=DeploymentRow(found, replicas.list_replicas(conn, found.id)),
        revision=revisions.get_revision(conn, tenant_id, found.revision_id),
        chart=step_chart(replica_counts(changes, since, now), since, now),
        window_s=window_s,
        ready_s=ready_seconds(changes, since, now),
        gone=tuple(reversed(gone))[:20],
    )


def spend(conn: Connection, tenant_id: str, start: date, end: date) -> Spend:
    lines = _lines(conn, tenant_id, start, end)
    return Spend(
        start=start,
        end=end,
        lines=tuple(reversed(lines)),
        by_model=_by_model(lines),
        total_nano_usd=sum(line.amount_nano_usd for line in lines),
        ever_nano_usd=ledger.spent_nano_usd(conn, tenant_id),
        chart=spend_chart(lines, start, end),
    )


def spend_chart(lines: Sequence[UsageLine], start: date, end: date) -> BarChart:
    """Spend by day, stacked by model."""
    days = [(start + timedelta(days=n)).isoformat() for n in range((end - start).days)]
    amounts: Counter[tuple[str, str]] = Counter()
    tokens: Counter[tuple[str, str]] = Counter()
    for line in lines:
        amounts[line.day, line.model] += line.amount_nano_usd
        tokens[line.day, line.model] += line.quantity if line.meter in TOKENS else 0
    titles = {
        (day, model): f"{day}, {model}: {usd(amount)}, {count(tokens[day, model])} tokens"
        for (day, model), amount in amounts.items()
    }
    return bar_chart(days, amounts, titles)


def _tokens_on(lines: Sequence[UsageLine], day: date) -> int:
    return sum(line.quantity for line in lines if line.day == day.isoformat() and line.meter in TOKENS)


def _by_model(lines: Sequence[UsageLine]) -> tuple[ModelSpend, ...]:
    found = []
    for model in sorted({line.model for line in lines}):
        mine = [line for line in lines if line.model == model]
        totals = Counter[Meter]()
        for line in mine:
            totals[line.meter] += line.quantity
        found.append(
            ModelSpend(
                model=model,
                prompt_tokens=totals[Meter.PROMPT_TOKENS],
                cached_tokens=totals[Meter.CACHED_TOKENS],
                completion_tokens=totals[Meter.COMPLETION_TOKENS],
                seconds=totals[Meter.REPLICA_SECONDS] + totals[Meter.COMPILE_SECONDS],
                amount_nano_usd=sum(line.amount_nano_usd for line in mine),
            )
        )
    return tuple(sorted(found, key=lambda s: -s.amount_nano_usd))


def _lines(conn: Connection, tenant_id: str, start: date, end: date) -> tuple[UsageLine, ...]:
    instants = (datetime(d.year, d.month, d.day, tzinfo=UTC).timestamp() for d in (start, end))
    return ledger.usage_by_day_and_model(conn, tenant_id, *instants)
