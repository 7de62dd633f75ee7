"""`make load`: a platform of its own with a tiny model, some seconds of load, and a reconciliation. Bounded.

    python -m loadtest.main [--scenario steady] [--length-s 20]

Exits 1 when an objective of `slo.yaml` was missed or a token is counted differently anywhere. Everything runs
on loopback and is stopped and removed at the end.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from candela.client import Client, ScalingPolicy
from loadtest import records
from loadtest.reconcile import read_books, reconcile, show, wait_until_settled
from loadtest.scenarios import scenarios
from tests.support.platform import Platform, running_platform
from tests.support.servers import free_port
from tests.support.tiny_checkpoints import write_tiny_checkpoint

MODEL = "tiny"
_LOCUSTFILE = Path(__file__).with_name("locustfile.py")
_LAST_ANSWERS_S = 60
_MARGIN_S = 120.0


def main(
    scenario: Annotated[str, typer.Option(help=f"One of {', '.join(scenarios(1.0))}.")] = "steady",
    length_s: Annotated[float, typer.Option(min=5.0, max=600.0, help="Seconds of load.")] = 20.0,
) -> None:
    """Load, judge, reconcile."""
    metrics = f"127.0.0.1:{free_port()}"
    env = {"CANDELA_METRICS_ADDR": metrics, "CANDELA_COMPILE_BUDGET": "none"}
    with running_platform(env=env) as platform, platform.client() as client:
        print(f"platform at {platform.url}; compiling a tiny model ...", flush=True)
        _deploy(platform, client, scenario)
        code = _run(platform, client, f"http://{metrics}/metrics", scenario, length_s)
    raise typer.Exit(code)


def _deploy(platform: Platform, client: Client, scenario: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_tiny_checkpoint(Path(folder), "gqa")
        sent = platform.candela("model", "upload", folder, "--name", MODEL, "--wait", "--json")
    assert sent.returncode == 0, sent.stderr + platform.logs()
    idle_s = 2.0 if scenario == "burst" else 60.0
    client.deployments.create(
        MODEL, MODEL, ScalingPolicy(min_replicas=0, max_replicas=2, idle_timeout_s=idle_s)
    )


def _run(platform: Platform, client: Client, metrics_url: str, scenario: str, length_s: float) -> int:
    """The exit code: of locust's gate, or of the reconciliation when the gate is content."""
    record = platform.home / "load.jsonl"
    before = read_books(client, metrics_url)
    gate = subprocess.run(
        [
            *(sys.executable, "-m", "locust", "-f", str(_LOCUSTFILE), "--headless", "--only-summary"),
            *("--host", platform.url, "--api-key", platform.api_key, "--model", MODEL),
            *("--scenario", scenario, "--length-s", str(length_s), "--record", str(record)),
            *("--stop-timeout", str(_LAST_ANSWERS_S)),
        ],
        timeout=length_s + _LAST_ANSWERS_S + _MARGIN_S,
        check=False,
        env=platform.environment(),
    ).returncode
    clients = records.read(record)
    rows = wait_until_settled(client, clients)
    balance = show(reconcile(clients, rows, before, read_books(client, metrics_url)))
    print(f"{len(clients)} requests; objectives {_word(gate)}, books {_word(balance)}")
    return gate or balance


def _word(code: int) -> str:
    return "missed" if code else "kept"


if __name__ == "__main__":
    typer.run(main)
