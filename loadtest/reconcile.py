"""Clients' own counts, the ledger, request rows and the Prometheus counter must say the same: else exit 1.

    python -m loadtest.reconcile note --metrics-url URL > before.json       before the run
    python -m loadtest.reconcile check --metrics-url URL --before before.json --record load.jsonl

Platform and key are found as `candela.Client` does (CANDELA_URL and CANDELA_API_KEY, or the data directory).
The counter lives in one gateway process: a gateway that started anew in between makes the check fail.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from prometheus_client.parser import text_string_to_metric_families

from candela.client import Client
from loadtest import records
from loadtest.records import ClientRecord
from loadtest.stream import Kind

METERS = ("prompt_tokens", "cached_tokens", "completion_tokens")
_COUNTER = "candela_billed_tokens_total"
_SETTLED_S = 60.0
_PAGE = 1000

Tokens = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Books:
    """What two books say at one moment: tokens by meter."""

    ledger: Tokens
    counter: Tokens


@dataclass(frozen=True, slots=True)
class Row:
    """The platform's own row of one request. `prompt_tokens` counts the cached ones, too."""

    client_request_id: str
    is_over: bool
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """`lines` is a table for a person; `mismatches` is empty when everything adds up."""

    lines: tuple[tuple[str, int, int, int], ...]
    mismatches: tuple[str, ...]


def reconcile(
    clients: Sequence[ClientRecord], rows: Sequence[Row], before: Books, after: Books
) -> Reconciliation:
    """Compare request by request, then sum by sum. Pure."""
    by_id = {row.client_request_id: row for row in rows}
    mismatches = [words for record in clients for words in _request_mismatch(record, by_id)]
    sums = {
        "prompt_tokens": sum(row.prompt_tokens - row.cached_tokens for row in rows),
        "cached_tokens": sum(row.cached_tokens for row in rows),
        "completion_tokens": sum(row.completion_tokens for row in rows),
    }
    lines = tuple(
        (
            meter,
            sums[meter],
            _grown(before.ledger, after.ledger, meter),
            _grown(before.counter, after.counter, meter),
        )
        for meter in METERS
    )
    for meter, requests, ledger, counter in lines:
        if not requests == ledger == counter:
            mismatches.append(f"{meter}: requests {requests}, ledger {ledger}, counter {counter}")
    return Reconciliation(lines, tuple(mismatches))


def read_books(client: Client, metrics_url: str) -> Books:
    """The ledger's totals over the API, and the gateway's counter from `/metrics`."""
    ledger = client.usage.get().quantities
    text = httpx.get(metrics_url, timeout=10.0).raise_for_status().text
    return Books({meter: ledger.get(meter, 0) for meter in METERS}, counter_totals(text))


def counter_totals(text: str) -> dict[str, int]:
    """Billed tokens by meter, over all models, in the exposition format."""
    totals = dict.fromkeys(METERS, 0)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == _COUNTER:
                totals[f"{sample.labels['kind']}_tokens"] += int(sample.value)
    return totals


def read_rows(client: Client, wanted: Iterable[str]) -> tuple[Row, ...]:
    """The rows of these client request ids, from the newest page by page until all are found."""
    missing, found, before = set(wanted), [], None
    while missing:
        page = _page(client, before)
        for raw in page:
            if raw["client_request_id"] in missing:
                missing.remove(raw["client_request_id"])
                found.append(_row(raw))
        if len(page) < _PAGE:
            break
        before = page[-1]["id"]
    return tuple(found)


def wait_until_settled(client: Client, clients: Sequence[ClientRecord]) -> tuple[Row, ...]:
    """The rows once every request that got through is over; what there is when that takes too long."""
    wanted = [record.request_id for record in clients]
    rows: list[tuple[Row, ...]] = []

    def is_settled() -> bool:
        rows[:] = [read_rows(client, wanted)]
        return all(row.is_over for row in rows[0])

    _wait(is_settled, _SETTLED_S)
    return rows[0]


def _request_mismatch(record: ClientRecord, rows: Mapping[str, Row]) -> Iterable[str]:
    row = rows.get(record.request_id)
    if record.kind in (Kind.FAILED, Kind.REFUSED):
        if record.kind is Kind.FAILED:
            yield f"{record.request_id} failed: {record.reason}"
        return
    if row is None or not row.is_over:
        yield f"{record.request_id} was answered, but {'is not over' if row else 'has no row'}"
        return
    is_equal = row.completion_tokens == record.received
    is_enough = record.kind is Kind.CUT and row.completion_tokens >= record.received
    if not (is_equal or is_enough):
        yield f"{record.request_id}: its client counted {record.received}, billed {row.completion_tokens}"
    if record.prompt_tokens is not None and record.prompt_tokens != row.prompt_tokens:
        yield f"{record.request_id}: prompt told {record.prompt_tokens}, billed {row.prompt_tokens}"


def _grown(before: Tokens, after: Tokens, meter: str) -> int:
    return after.get(meter, 0) - before.get(meter, 0)


def _page(client: Client, before: str | None) -> list[dict[str, Any]]:
    query = {"limit": str(_PAGE), **({"before": before} if before else {})}
    headers = {"authorization": f"Bearer {client.config.api_key}"}
    answer = httpx.get(f"{client.config.url}/api/v1/requests", params=query, headers=headers, timeout=30.0)
    data: list[dict[str, Any]] = answer.raise_for_status().json()["data"]
    return data


def _row(raw: Mapping[str, Any]) -> Row:
    return Row(
        raw["client_request_id"],
        raw["finished_at"] is not None,
        raw["prompt_tokens"],
        raw["cached_tokens"],
        raw["completion_tokens"],
    )


def _wait(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


def show(found: Reconciliation) -> int:
    """Print the table and what does not add up; the exit code."""
    print(f"{'meter':20}{'requests':>12}{'ledger':>12}{'counter':>12}")
    for meter, *figures in found.lines:
        print(f"{meter:20}" + "".join(f"{figure:12,}" for figure in figures))
    for words in found.mismatches:
        print(f"mismatch: {words}")
    return 1 if found.mismatches else 0


app = typer.Typer(add_completion=False)
MetricsUrl = Annotated[str, typer.Option(help="The gateway's /metrics.")]


@app.command()
def note(metrics_url: MetricsUrl) -> None:
    """Print what the books say now, as JSON."""
    with Client() as client:
        print(json.dumps(asdict(read_books(client, metrics_url))))


@app.command()
def check(
    metrics_url: MetricsUrl,
    before: Annotated[Path, typer.Option(help="What `note` printed before the run.")],
    record: Annotated[Path, typer.Option(help="What locust's clients counted.")],
) -> None:
    """Compare; exit 1 when anything does not add up."""
    with Client() as client:
        clients = records.read(record)
        rows = wait_until_settled(client, clients)
        then = Books(**json.loads(before.read_text(encoding="utf-8")))
        raise typer.Exit(show(reconcile(clients, rows, then, read_books(client, metrics_url))))


if __name__ == "__main__":
    app()
