"""Each image's start command, run as a process here with the image's and compose's environment.

What names another host or a place in the image is replaced by loopback, free ports and a temporary folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.images import compose_file, read_image
from tests.support.repository import ROOT
from tests.support.servers import free_port, running_valkey, short_directory

HEALTHY_S = 60.0
STOPPED_S = 40.0


class Here:
    """Translates what an image says into what can run on this machine."""

    def __init__(self, home: Path, redis_url: str) -> None:
        self._addresses = {
            "/opt/candela/healthcheck.py": str(ROOT / "deploy" / "healthcheck.py"),
            "/var/lib/candela": str(home),
            "0.0.0.0": "127.0.0.1",
            "8080": str(free_port()),
            "9464": str(free_port()),
            "9465": str(free_port()),
        }
        self._servers = {
            "CANDELA_DATABASE_URL": f"sqlite:///{home / 'candela.db'}",
            "CANDELA_REDIS_URL": redis_url,
            "CANDELA_SECRET_KEY": "s" * 32,
        }

    def command(self, words: tuple[str, ...]) -> list[str]:
        program, *rest = words
        assert program == "python", "an image starts Python, without a shell"
        return [sys.executable, *(self._place(word) for word in rest)]

    def environment(self, service: str) -> dict[str, str]:
        """The image's variables, compose's over them; nothing of this machine's that is ours."""
        image = "gateway" if service == "setup" else service
        said = {**read_image(image).environment, **compose_file()["services"][service]["environment"]}
        told = {name: self._servers.get(name, self._place(value)) for name, value in said.items()}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("CANDELA_")}
        return {**inherited, **told, "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}

    def _place(self, text: str) -> str:
        for there, here in self._addresses.items():
            text = text.replace(there, here)
        return text


@pytest.fixture(scope="module")
def here() -> Iterator[Here]:
    """A database that the compose file's `setup` service has prepared, and a broker."""
    with short_directory() as home, running_valkey() as redis_url:
        here = Here(home, redis_url)
        setup = tuple(compose_file()["services"]["setup"]["command"])
        done = subprocess.run(
            here.command(setup),
            env=here.environment("setup"),
            cwd=home,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert (home / "client.json").stat().st_mode & 0o777 == 0o600
        yield here


@pytest.mark.parametrize("name", ["gateway", "scheduler", "worker"])
def test_the_start_command_becomes_healthy_and_ends_when_it_is_told(
    here: Here, name: str, tmp_path: Path
) -> None:
    image, environment = read_image(name), here.environment(name)
    with started(here.command(image.command), environment, tmp_path) as process:
        wait_until_healthy(process, here.command(image.health_command), environment, tmp_path)
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOPPED_S) in (0, -signal.SIGTERM)


def test_a_health_check_says_when_nobody_answers(here: Here) -> None:
    command = here.command(read_image("gateway").health_command)
    done = subprocess.run(command, env=here.environment("gateway"), capture_output=True, check=False)
    assert done.returncode == 1


@contextmanager
def started(
    command: list[str], environment: Mapping[str, str], folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_until_healthy(
    process: subprocess.Popen[bytes], check: list[str], environment: Mapping[str, str], folder: Path
) -> None:
    """Run the image's health check, as Docker would, until it passes."""
    deadline = time.monotonic() + HEALTHY_S
    while subprocess.run(check, env=environment, capture_output=True, check=False).returncode != 0:
        said = (folder / "log").read_text(errors="replace")[-3000:]
        assert process.poll() is None, f"it ended with {process.returncode}:\n{said}"
        assert time.monotonic() < deadline, f"not healthy within {HEALTHY_S:g} s:\n{said}"
