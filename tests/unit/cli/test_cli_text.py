"""Durations, money, failures: the pure parts of the command line."""

from __future__ import annotations

import errno
import json

import pytest
import typer

from candela.cli.durations import parse_duration, show_duration
from candela.cli.failures import known_failure
from candela.cli.lazy import COMMANDS, load_command
from candela.cli.money import show_usd
from candela.cli.output import format_table
from candela.client import CheckpointUnusable, Problem


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("250ms", 0.25),
        ("45", 45.0),
        ("1.5h", 5400.0),
        (" 2D ", 172800.0),
    ],
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text, "--idle") == seconds


@pytest.mark.parametrize("text", ["", "s", "5 parsecs", "-3s", "1h 30m", "nan", "1e3", "3x"])
def test_what_is_no_duration_is_misuse(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a duration"):
        parse_duration(text, "--idle")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.25, "0.25s"), (30.0, "30s"), (90.0, "1m30s"), (3600.0, "1h"), (5400.0, "1h30m")]
)
def test_durations_are_shown_short(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text


@pytest.mark.parametrize(
    ("nano_usd", "text"),
    [
        (0, "$0.00"),
        (1, "$0.000000001"),
        (1_500_000_000, "$1.50"),
        (-20_000_000, "-$0.02"),
        (9_007_199_254_740_993, "$9,007,199.254740993"),
    ],
)
def test_money_is_shown_exactly(nano_usd: int, text: str) -> None:
    assert show_usd(nano_usd) == text


def test_a_known_error_becomes_one_line_with_its_code() -> None:
    error = CheckpointUnusable(
        (Problem("bad_name", "first\n line", "a"), Problem("empty_file", "second", None))
    )
    failure = known_failure(error)
    assert failure is not None
    assert (failure.code, failure.message) == ("bad_name", "first line; second")
    assert json.loads(failure.as_json())["error"]["problems"][1] == {
        "code": "empty_file",
        "message": "second",
        "where": None,
    }


def test_tables_are_aligned_and_never_cut() -> None:
    long_id = "job_" + "0" * 60
    assert format_table([("ID", "STATE"), (long_id, "queued"), ("x", "")]) == [
        "ID".ljust(64) + "  STATE",
        f"{long_id}  queued",
        "x",
    ]


def test_a_bug_is_not_a_known_error() -> None:
    assert known_failure(ZeroDivisionError("oops")) is None


def test_a_full_disk_is_an_answer_and_no_bug() -> None:
    failure = known_failure(OSError(errno.ENOSPC, "No space left on device", "/data/x"))
    assert failure is not None
    assert failure.message == "No space left on device: /data/x"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_listed_command_loads_and_has_the_listed_help(name: str) -> None:
    command = load_command(name)
    assert command.name == name
    help_text = command.help or ""
    assert help_text.split("\n")[0].rstrip(".") != ""
