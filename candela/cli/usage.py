"""`candela usage`: what was used and what it costs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from candela.client import Client, UsageLine

from .money import show_usd
from .output import AsJson, DataDirOption, print_json, print_table

_DAY = "%Y-%m-%d"
app = typer.Typer(add_completion=False)


@app.command()
def usage(
    start: Annotated[datetime | None, typer.Option(formats=[_DAY], help="First day, UTC.")] = None,
    end: Annotated[datetime | None, typer.Option(formats=[_DAY], help="Day after the last, UTC.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Recompute the ledger's chain, too.")] = False,
    data_dir: DataDirOption = None,
    as_json: AsJson = False,
) -> None:
    """Show priced usage by day, model and meter. With --json, money is in integer nano-USD."""
    days = [moment.date() if moment is not None else None for moment in (start, end)]
    with Client(data_dir=data_dir) as client:
        report = client.usage.get(*days, verify=verify)
    if as_json:
        return print_json(report)
    print_table(("DAY", "MODEL", "METER", "QUANTITY", "COST"), (_row(line) for line in report.lines))
    print(f"total {show_usd(report.total_nano_usd)} ({report.start} to {report.end})")
    if verify:
        print(f"ledger chain {'intact' if report.chain_is_intact else 'BROKEN'}")
    return None


def _row(line: UsageLine) -> tuple[str, ...]:
    return (line.day, line.model, line.meter, f"{line.quantity:,}", show_usd(line.amount_nano_usd))
