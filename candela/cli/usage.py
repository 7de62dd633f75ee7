"""`candela usage`: what was used and what it costs."""

from __future__ import annotations

import typer

from candela.client import Client, UsageLine

from .money import show_usd
from .output import AsJson, DataDirOption, print_json, print_table

app = typer.Typer(add_completion=False)


@app.command()
def usage(data_dir: DataDirOption = None, as_json: AsJson = False) -> None:
    """Show priced usage by day, model and meter. With --json, money is in integer nano-USD."""
    with Client(data_dir=data_dir) as client:
        report = client.usage.get()
    if as_json:
        return print_json(report)
    print_table(("DAY", "MODEL", "METER", "QUANTITY", "COST"), (_row(line) for line in report.lines))
    return print(f"total {show_usd(report.total_nano_usd)} ({report.start} to {report.end})")


def _row(line: UsageLine) -> tuple[str, ...]:
    return (line.day, line.model, line.meter, f"{line.quantity:,}", show_usd(line.amount_nano_usd))
