"""`candela doctor`: does this machine have what compiling and serving need?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from candela.up import UpSettings

from .checks import Verdict, run_checks
from .output import AsJson, print_json

app = typer.Typer(add_completion=False)
_MARKS = {Verdict.OK: "[green]ok  [/]", Verdict.WARNING: "[yellow]warn[/]", Verdict.FAILED: "[red]FAIL[/]"}


@app.command()
def doctor(
    data_dir: Annotated[Path | None, typer.Option(help="The data directory to check.")] = None,
    port: Annotated[int | None, typer.Option(help="The port to check.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check this machine and name the fix for what is missing; exit 1 if something must be fixed."""
    chosen: dict[str, Any] = {"data_dir": data_dir, "port": port}
    settings = UpSettings(**{key: value for key, value in chosen.items() if value is not None})
    console = Console(highlight=False, soft_wrap=True)
    findings = []
    for finding in run_checks(settings):
        findings.append(finding)
        if not as_json:
            console.print(f"{_MARKS[finding.verdict]} {finding.name:9} {escape(finding.detail)}")
            if finding.fix is not None:
                console.print(f"     {'':9} fix: {escape(finding.fix)}")
    if as_json:
        print_json(findings)
    if any(finding.verdict is Verdict.FAILED for finding in findings):
        raise typer.Exit(1)
