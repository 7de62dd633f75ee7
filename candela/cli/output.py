"""Where commands write: results on stdout (a table, or one JSON value), talk on stderr."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        envvar="CANDELA_DATA_DIR",
        help="The platform's data directory (its client.json names address and key). Default: ~/.candela",
    ),
]

talk = Console(stderr=True, highlight=False)


def print_json(value: object) -> None:
    """One JSON value and a line end; dataclasses become objects."""
    sys.stdout.write(json.dumps(_plain(value), default=str, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Aligned columns on stdout; never cut, so that ids can be copied and piped."""
    for line in format_table([tuple(headings), *(tuple(row) for row in rows)]):
        print(line)


def format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """One line a row; the last column is not padded."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip() for row in rows]


def show_time(unix_s: float | None) -> str:
    if unix_s is None:
        return "-"
    return datetime.fromtimestamp(unix_s, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def show_bytes(size: int | None) -> str:
    if size is None:
        return "-"
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
