"""The supervisor over real child processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from candela.up.child import ChildService
from candela.up.errors import StartFailed
from candela.up.identity import end_all, is_alive
from candela.up.policy import RestartPolicy
from candela.up.signals import SignalWaiter
from candela.up.specs import ChildSpec
from candela.up.state import ChildState
from candela.up.supervisor import Supervisor

POLITE = """
import pathlib, signal, sys, time
def leave(*_):
    with open("order", "a") as order:
        order.write("{name} ")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
pathlib.Path("{name}.up").touch()
time.sleep(60)
"""
STUBBORN = """
import pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path("s.up").touch()
time.sleep(60)
"""
BROKEN = "import sys; print('no such luck'); sys.exit(3)"


class Stage:
    """A supervisor in a directory of little programs; what it told last is in `told`."""

    def __init__(self, home: Path, signals: SignalWaiter) -> None:
        self.home = home
        self.told: tuple[ChildState, ...] = ()
        self.supervisor = Supervisor(signals, self._tell, RestartPolicy(first_s=0.05))

    def add(self, name: str, program: str, rank: int = 0, grace_s: float = 5.0) -> None:
        (self.home / f"prog_{name}.py").write_text(program)
        spec = ChildSpec(name, f"prog_{name}", {"PYTHONPATH": str(self.home)}, rank, grace_s)
        self.supervisor.add(ChildService(spec, dict(os.environ), self.home, self.home))

    def wait_for(self, *names: str) -> None:
        assert self.supervisor.wait_until(lambda: all((self.home / f"{n}.up").exists() for n in names), 20.0)

    def _tell(self, children: tuple[ChildState, ...]) -> None:
        self.told = children


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with SignalWaiter() as signals:
        stage = Stage(tmp_path, signals)
        yield stage
        stage.supervisor.stop()


def stop_soon(after_s: float) -> threading.Timer:
    timer = threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    return timer


def test_a_process_that_is_killed_is_started_again(stage: Stage) -> None:
    stage.add("a", POLITE.format(name="a"))
    stage.wait_for("a")
    first = stage.told[0]
    os.kill(first.identity.pid, signal.SIGKILL)
    stop_soon(1.5)
    stage.supervisor.run()
    assert stage.told[0].restarts == 1
    assert stage.told[0].identity != first.identity
    assert is_alive(stage.told[0].identity)


def test_ranks_stop_in_order(stage: Stage) -> None:
    for name, rank in (("late", 2), ("first", 0), ("middle", 1)):
        stage.add(name, POLITE.format(name=name), rank)
    stage.wait_for("late", "first", "middle")
    stage.supervisor.stop()
    assert (stage.home / "order").read_text().split() == ["first", "middle", "late"]
    assert not any(is_alive(child.identity) for child in stage.told)


def test_one_that_will_not_stop_is_killed_after_its_grace(stage: Stage) -> None:
    stage.add("s", STUBBORN, grace_s=0.3)
    stage.wait_for("s")
    began = time.monotonic()
    stage.supervisor.stop()
    assert not is_alive(stage.told[0].identity)
    assert time.monotonic() - began < 5.0


def test_a_second_signal_ends_the_patience(stage: Stage) -> None:
    stage.add("s", STUBBORN, grace_s=30.0)
    stage.wait_for("s")
    stop_soon(0.2)
    began = time.monotonic()
    stage.supervisor.stop()
    assert time.monotonic() - began < 10.0


def test_an_end_before_readiness_fails_the_start_and_shows_the_log(stage: Stage) -> None:
    stage.add("b", BROKEN)
    with pytest.raises(StartFailed, match=r"b ended with 3[\s\S]*no such luck"):
        stage.wait_for("b")


def test_a_stop_signal_ends_the_waiting(stage: Stage) -> None:
    stage.add("a", POLITE.format(name="a"))
    stop_soon(0.2)
    assert stage.supervisor.wait_until(lambda: False, 20.0) is False


def test_leftovers_are_ended_by_identity(stage: Stage) -> None:
    stage.add("a", POLITE.format(name="a"))
    stage.wait_for("a")
    assert end_all([stage.told[0].identity], grace_s=5.0) == 1
    assert not is_alive(stage.told[0].identity)
