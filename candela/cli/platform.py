"""`candela up`, `down` and `status`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from candela.up import DataDir, Stopped, UpSettings, platform_status, stop_platform
from common.errors import PlatformError

from .output import AsJson, print_json, print_table, talk

up_app = typer.Typer(add_completion=False)
down_app = typer.Typer(add_completion=False)
status_app = typer.Typer(add_completion=False)

DataDirOption = Annotated[
    Path | None, typer.Option(help="Where everything is kept. Default: CANDELA_DATA_DIR or ~/.candela")
]


class NotRunning(PlatformError):
    code = "not_running"


@up_app.command()
def up(
    data_dir: DataDirOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: 127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Default: 8080; 0 picks one.")] = None,
    workers: Annotated[int | None, typer.Option(min=0, help="Compile workers. Default: 1")] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return once it is ready.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start the whole platform on this machine, and keep it running until Ctrl-C."""
    chosen: dict[str, Any] = {"data_dir": data_dir, "host": host, "port": port, "workers": workers}
    settings = UpSettings(**{key: value for key, value in chosen.items() if value is not None})
    if detach:
        _up_detached(settings, as_json)
    else:
        _up_here(settings, as_json)


@down_app.command()
def down(
    data_dir: DataDirOption = None,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds before force is used.")] = 90.0,
    as_json: AsJson = False,
) -> None:
    """Stop the platform: answers in flight are finished first."""
    outcome = stop_platform(_data_dir(data_dir), timeout_s)
    if as_json:
        print_json({"outcome": outcome})
    else:
        talk.print(_DOWN_WORDS[outcome])


@status_app.command()
def status(data_dir: DataDirOption = None, as_json: AsJson = False) -> None:
    """Show the platform's processes; exit 1 unless it runs and answers."""
    found = platform_status(_data_dir(data_dir))
    if as_json:
        print_json(found)
    else:
        rows = (
            (p.name, str(p.pid), "alive" if p.is_alive else "gone", str(p.restarts)) for p in found.processes
        )
        print_table(("PROCESS", "PID", "STATE", "RESTARTS"), rows)
        talk.print(f"answers at {found.url}" if found.is_healthy else "does not answer")
    if not (found.is_running and found.is_healthy):
        raise typer.Exit(1)


_DOWN_WORDS = {
    Stopped.NOT_RUNNING: "nothing runs there",
    Stopped.STOPPED: "stopped",
    Stopped.KILLED: "stopped by force: it did not end in time",
    Stopped.LEFTOVERS_ENDED: "its supervisor was gone already; what it left behind was ended",
}


def _data_dir(chosen: Path | None) -> DataDir:
    return DataDir((UpSettings() if chosen is None else UpSettings(data_dir=chosen)).home)


def _up_here(settings: UpSettings, as_json: bool) -> None:
    from candela.up.platform import Ready, run_platform
    from common.logs import configure_logging

    configure_logging("up", level="WARNING")

    def announce(ready: Ready) -> None:
        _announce(ready.url, ready.data_dir, ready.new_admin_key, as_json)
        talk.print(f"ready in {ready.took_s:.1f} s; Ctrl-C stops everything")

    run_platform(settings, os.environ, announce)
    talk.print("stopped")


def _up_detached(settings: UpSettings, as_json: bool) -> None:
    from candela.client.config import read_config
    from candela.up.detach import start_detached

    data_dir = DataDir(settings.home)
    arguments = ["--data-dir", str(settings.home), "--host", settings.host, "--port", str(settings.port)]
    arguments += ["--workers", str(settings.workers)]
    state = start_detached(arguments, os.environ, data_dir, settings.ready_timeout_s)
    key = read_config(data_dir.client_file).api_key if state.made_admin_key else None
    _announce(state.url, str(data_dir.root), key, as_json)
    talk.print(f"runs in the background; stop it with: candela down --data-dir {data_dir.root}")


def _announce(url: str, data_dir: str, new_admin_key: str | None, as_json: bool) -> None:
    facts: dict[str, Any] = {"url": url, "dashboard": f"{url}/dashboard", "data_dir": data_dir}
    if new_admin_key is not None:
        facts["admin_key"] = new_admin_key
    if as_json:
        return print_json(facts)
    for name, value in facts.items():
        print(f"{name.replace('_', ' '):10} {value}", flush=True)
    if new_admin_key is not None:
        talk.print(f"the admin key is shown this once; {data_dir}/client.json keeps it for this machine")
    return None
