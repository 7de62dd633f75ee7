"""The replica image's start command on a compiled tiny model: ready line, health check, drain."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.images import read_image
from tests.support.repository import ROOT
from tests.support.servers import short_directory
from tests.support.tiny_checkpoints import write_tiny_checkpoint

HEALTHY_S = 60.0
SECRET = "a-secret-for-this-replica"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is mounted at /model: an artifact and its tokenizer, made by the real compiler."""
    checkpoint, model = tmp_path_factory.mktemp("checkpoint"), tmp_path_factory.mktemp("model")
    write_tiny_checkpoint(checkpoint, "gqa")
    command = [sys.executable, "-m", "candela.cli", "compile", str(checkpoint), "-o", str(model)]
    done = subprocess.run(
        [*command, "--budget", "none"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return model


@pytest.fixture
def home() -> Iterator[Path]:
    with short_directory() as home:
        yield home


def test_the_start_command_becomes_healthy_and_drains_when_it_is_told(model: Path, home: Path) -> None:
    environment = environment_of("replica")
    process = subprocess.Popen(
        here(read_image("replica").command, model, home),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until_healthy(process, here(read_image("replica").health_command, model, home), environment)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=30.0)
    finally:
        process.kill()
    assert process.returncode == 0
    assert json.loads(said.splitlines()[0])["replica_id"] == "replica"


def test_the_health_check_fails_without_the_secret(model: Path, home: Path) -> None:
    environment = environment_of("replica")
    command = here(read_image("replica").health_command, model, home)
    process = subprocess.Popen(
        here(read_image("replica").command, model, home), env=environment, stdout=subprocess.DEVNULL
    )
    try:
        wait_until_healthy(process, command, environment)
        wrong = {**environment, "CANDELA_REPLICA_SECRET": "another"}
        assert subprocess.run(command, env=wrong, capture_output=True, check=False).returncode == 1
    finally:
        process.kill()
        process.wait()


def here(words: tuple[str, ...], model: Path, home: Path) -> list[str]:
    """The image's command with this machine's places in it."""
    program, *rest = words
    assert program == "python", "an image starts Python, without a shell"
    places = {
        "/opt/candela/healthcheck.py": str(ROOT / "deploy" / "healthcheck.py"),
        "/var/lib/candela": str(home),
        "/model": str(model),
    }
    for there, place in places.items():
        rest = [word.replace(there, place) for word in rest]
    return [sys.executable, *rest]


def environment_of(name: str) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("CANDELA_")}
    own = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "CANDELA_REPLICA_SECRET": SECRET}
    return {**inherited, **read_image(name).environment, **own}


def wait_until_healthy(
    process: subprocess.Popen[str] | subprocess.Popen[bytes], check: list[str], environment: dict[str, str]
) -> None:
    """Run the image's health check, as Docker would, until it passes."""
    deadline = time.monotonic() + HEALTHY_S
    while subprocess.run(check, env=environment, capture_output=True, check=False).returncode != 0:
        assert process.poll() is None, f"it ended with {process.returncode}"
        assert time.monotonic() < deadline, f"not healthy within {HEALTHY_S:g} s"
