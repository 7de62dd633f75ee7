"""Four books that must say the same: clients, request rows, ledger, counter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest

from loadtest import records
from loadtest.reconcile import Books, Row, counter_totals, reconcile, show
from loadtest.records import ClientRecord
from loadtest.stream import Kind

CLIENT = ClientRecord("load-1", Kind.DONE, received=5, prompt_tokens=7)
ROW = Row("load-1", is_over=True, prompt_tokens=7, cached_tokens=2, completion_tokens=5)
ZERO = {"prompt_tokens": 0, "cached_tokens": 0, "completion_tokens": 0}
GROWN = {"prompt_tokens": 5, "cached_tokens": 2, "completion_tokens": 5}
BEFORE, AFTER = Books(ZERO, ZERO), Books(GROWN, GROWN)


def test_books_that_say_the_same_have_no_mismatch() -> None:
    assert reconcile([CLIENT], [ROW], BEFORE, AFTER).mismatches == ()


@pytest.mark.parametrize(
    ("client", "row", "words"),
    [
        (replace(CLIENT, received=4), ROW, "its client counted 4, billed 5"),
        (replace(CLIENT, prompt_tokens=8), ROW, "prompt told 8, billed 7"),
        (CLIENT, replace(ROW, is_over=False), "is not over"),
        (replace(CLIENT, request_id="load-2"), ROW, "has no row"),
        (replace(CLIENT, kind=Kind.FAILED, reason="no [DONE]"), ROW, "failed: no [DONE]"),
        (replace(CLIENT, kind=Kind.CUT, received=6), ROW, "its client counted 6, billed 5"),
    ],
)
def test_a_request_that_is_counted_differently_is_named(client: ClientRecord, row: Row, words: str) -> None:
    assert words in reconcile([client], [row], BEFORE, AFTER).mismatches[0]


def test_a_client_that_left_may_have_heard_less_than_is_billed() -> None:
    left = replace(CLIENT, kind=Kind.CUT, received=3, prompt_tokens=None)
    assert reconcile([left], [ROW], BEFORE, AFTER).mismatches == ()


def test_a_request_that_was_refused_needs_no_row() -> None:
    refused = ClientRecord("load-9", Kind.REFUSED, 0, None, "503")
    assert reconcile([CLIENT, refused], [ROW], BEFORE, AFTER).mismatches == ()


@pytest.mark.parametrize("book", ["ledger", "counter"])
def test_a_token_too_many_in_one_book_is_found(book: str) -> None:
    after = replace(AFTER, **{book: {**GROWN, "completion_tokens": 6}})
    assert "completion_tokens: requests 5" in reconcile([CLIENT], [ROW], BEFORE, after).mismatches[0]


def test_a_mismatch_makes_the_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    code = show(reconcile([CLIENT], [ROW], BEFORE, BEFORE))
    assert code == 1
    assert "mismatch: prompt_tokens" in capsys.readouterr().out


def test_the_counter_is_summed_over_models() -> None:
    registry = CollectorRegistry()
    tokens = Counter("candela_billed_tokens_total", "Tokens", ["kind", "model_name"], registry=registry)
    tokens.labels("prompt", "a").inc(3)
    tokens.labels("prompt", "b").inc(4)
    tokens.labels("completion", "a").inc(5)
    wanted = {"prompt_tokens": 7, "cached_tokens": 0, "completion_tokens": 5}
    assert counter_totals(generate_latest(registry).decode()) == wanted


def test_records_survive_the_file(tmp_path: Path) -> None:
    records.append(tmp_path / "load.jsonl", CLIENT)
    records.append(tmp_path / "load.jsonl", replace(CLIENT, kind=Kind.CUT, prompt_tokens=None))
    assert [r.kind for r in records.read(tmp_path / "load.jsonl")] == [Kind.DONE, Kind.CUT]
    assert records.read(tmp_path / "load.jsonl")[0] == CLIENT


def test_no_request_means_no_records(tmp_path: Path) -> None:
    assert records.read(tmp_path / "absent.jsonl") == ()
