"""The process launcher with real child processes that speak the replica protocol."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from common.clock import wall_clock
from common.wire import SECRET_HEADER, ReplicaState, ReplicaStats
from scheduler.launchers import (
    BecameReady,
    Endpoint,
    Exited,
    LauncherEvent,
    LaunchFailed,
    ProcessLauncher,
    ProcessLauncherConfig,
    ReplicaSpec,
)
from tests.support.eventually import eventually

FAKE = Path(__file__).parents[2] / "support" / "fake_replica.py"
PROGRAM = (sys.executable, "-P", "-S", str(FAKE))
Events = queue.Queue[LauncherEvent]


def config(home: Path) -> ProcessLauncherConfig:
    environment = {"PATH": os.environ["PATH"]}
    return ProcessLauncherConfig(home / "run", home / "logs", environment, PROGRAM)


@pytest.fixture
def events() -> Events:
    return queue.Queue()


@pytest.fixture
def launcher(short_dir: Path, events: Events) -> Iterator[ProcessLauncher]:
    launcher = ProcessLauncher(config(short_dir), events.put, wall_clock)
    yield launcher
    launcher.close(grace_s=1.0)


def spec(home: Path, replica_id: str = "rep_0000000001", **behaviour: object) -> ReplicaSpec:
    artifact = home / replica_id
    artifact.mkdir(exist_ok=True)
    (artifact / "fake.json").write_text(json.dumps(behaviour))
    return ReplicaSpec(replica_id, "dep_1", artifact, artifact, 64, 8, 512, 512 << 20)


def expect(events: Events, kind: type[LauncherEvent]) -> LauncherEvent:
    event = events.get(timeout=20)
    assert isinstance(event, kind), event
    return event


def stats_of(endpoint: Endpoint, secret: str) -> httpx.Response:
    transport = httpx.HTTPTransport(uds=endpoint.socket_path)
    with httpx.Client(transport=transport, base_url="http://replica") as client:
        return client.get("/stats", headers={SECRET_HEADER: secret})


def pid_of(home: Path, replica_id: str = "rep_0000000001") -> int:
    return int(json.loads((home / "run" / f"{replica_id}.replica.json").read_text())["pid"])


def test_a_replica_becomes_ready_and_answers_with_its_secret(
    launcher: ProcessLauncher, events: Events, short_dir: Path
) -> None:
    endpoint = launcher.launch(spec(short_dir))
    ready = expect(events, BecameReady)
    assert isinstance(ready, BecameReady)
    assert ready.stats.max_sequences == 8
    answer = stats_of(endpoint, endpoint.secret)
    assert ReplicaStats.from_json(answer.content).state is ReplicaState.READY
    assert stats_of(endpoint, "wrong").status_code == 403


def test_a_terminated_replica_drains_and_is_no_crash(
    launcher: ProcessLauncher, events: Events, short_dir: Path
) -> None:
    launcher.launch(spec(short_dir))
    expect(events, BecameReady)
    launcher.terminate("rep_0000000001")
    exited = expect(events, Exited)
    assert isinstance(exited, Exited)
    assert not exited.is_crash


def test_a_failed_start_is_a_crash_with_the_last_line_of_its_log(
    launcher: ProcessLauncher, events: Events, short_dir: Path
) -> None:
    launcher.launch(spec(short_dir, exit_before_ready=3))
    exited = expect(events, Exited)
    assert isinstance(exited, Exited)
    assert (exited.is_crash, exited.detail) == (True, "exited with code 3: fake replica: told to fail")


def test_a_killed_replica_is_a_crash(launcher: ProcessLauncher, events: Events, short_dir: Path) -> None:
    launcher.launch(spec(short_dir))
    expect(events, BecameReady)
    os.kill(pid_of(short_dir), signal.SIGKILL)
    exited = expect(events, Exited)
    assert isinstance(exited, Exited)
    assert (exited.is_crash, exited.detail) == (True, "ended by SIGKILL (out of memory?)")


def test_a_replica_that_ignores_sigterm_is_killed(
    launcher: ProcessLauncher, events: Events, short_dir: Path
) -> None:
    launcher.launch(spec(short_dir, ignores_sigterm=True))
    expect(events, BecameReady)
    launcher.terminate("rep_0000000001")
    launcher.kill("rep_0000000001")
    exited = expect(events, Exited)
    assert isinstance(exited, Exited)
    assert not exited.is_crash


def test_a_replica_over_its_memory_limit_is_killed(
    launcher: ProcessLauncher, events: Events, short_dir: Path
) -> None:
    launcher.launch(spec(short_dir, hoard_bytes=800 << 20))
    expect(events, BecameReady)
    exited = expect(events, Exited)
    assert isinstance(exited, Exited)
    assert exited.is_crash
    assert "more than its memory limit" in exited.detail


def test_nothing_is_left_in_the_run_directory(
    launcher: ProcessLauncher, events: Events, short_dir: Path
) -> None:
    launcher.launch(spec(short_dir))
    expect(events, BecameReady)
    launcher.kill("rep_0000000001")
    expect(events, Exited)
    assert list((short_dir / "run").iterdir()) == []


def test_the_replica_sees_only_the_given_environment(
    launcher: ProcessLauncher, events: Events, short_dir: Path
) -> None:
    launcher.launch(spec(short_dir))
    expect(events, BecameReady)
    seen = psutil.Process(pid_of(short_dir)).environ()
    assert set(seen) - {"LC_CTYPE"} == {"PATH", "CANDELA_REPLICA_SECRET"}


def test_the_secret_is_not_on_the_command_line(
    launcher: ProcessLauncher, events: Events, short_dir: Path
) -> None:
    endpoint = launcher.launch(spec(short_dir))
    expect(events, BecameReady)
    assert endpoint.secret not in " ".join(psutil.Process(pid_of(short_dir)).cmdline())
    assert endpoint.secret not in repr(endpoint)


def test_a_data_directory_too_deep_for_a_socket_is_refused(tmp_path: Path, events: Events) -> None:
    home = tmp_path / ("d" * 100)
    launcher = ProcessLauncher(config(home), events.put, wall_clock)
    with pytest.raises(LaunchFailed, match="CANDELA_DATA_DIR"):
        launcher.launch(spec(tmp_path))


def test_a_program_that_does_not_exist_ends_at_once(short_dir: Path, events: Events) -> None:
    missing = ProcessLauncherConfig(short_dir / "run", short_dir / "logs", {}, ("/nowhere/replica",))
    launcher = ProcessLauncher(missing, events.put, wall_clock)
    launcher.launch(spec(short_dir))
    exited = expect(events, Exited)
    assert isinstance(exited, Exited)
    assert exited.is_crash


PARENT = """
import json, sys, time
from pathlib import Path
from scheduler.launchers import ProcessLauncher, ProcessLauncherConfig, ReplicaSpec
home, fake = Path(sys.argv[1]), sys.argv[2]
config = ProcessLauncherConfig(home / "run", home / "logs", {}, (sys.executable, "-P", "-S", fake))
launcher = ProcessLauncher(config, lambda event: print(type(event).__name__, flush=True), time.time)
launcher.launch(ReplicaSpec("rep_0000000001", "dep_1", home, home, 64, 8, 512, 512 << 20))
time.sleep(60)
"""


def killed_scheduler(home: Path, **behaviour: object) -> int:
    """Start a launcher in a process of its own, kill -9 it once its replica is ready; the replica's pid."""
    (home / "fake.json").write_text(json.dumps(behaviour))
    command = [sys.executable, "-c", PARENT, str(home), str(FAKE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline().strip() == "BecameReady"
        pid = pid_of(home)
        parent.kill()
    return pid


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_replica_goes_when_its_scheduler_is_killed(short_dir: Path) -> None:
    pid = killed_scheduler(short_dir)
    assert eventually(lambda: not is_running(pid))


def test_the_next_scheduler_ends_a_replica_that_would_not_go(
    launcher: ProcessLauncher, events: Events, short_dir: Path
) -> None:
    pid = killed_scheduler(short_dir, ignores_sigterm=True)
    assert launcher.adopt_leftovers() == ("rep_0000000001",)
    launcher.kill("rep_0000000001")
    exited = expect(events, Exited)
    assert isinstance(exited, Exited)
    assert not exited.is_crash
    assert not is_running(pid)


def test_a_pid_that_belongs_to_another_program_is_left_alone(
    launcher: ProcessLauncher, short_dir: Path
) -> None:
    record = {"replica_id": "rep_x", "pid": os.getpid(), "started_at": 1.0, "socket_path": "/nowhere"}
    path = short_dir / "run" / "rep_x.replica.json"
    path.write_text(json.dumps(record))
    assert launcher.adopt_leftovers() == ()
    assert not path.exists()


def test_close_leaves_no_process(short_dir: Path, events: Events) -> None:
    launcher = ProcessLauncher(config(short_dir), events.put, wall_clock)
    launcher.launch(spec(short_dir, ignores_sigterm=True))
    expect(events, BecameReady)
    pid = pid_of(short_dir)
    launcher.close(grace_s=0.1)
    assert not is_running(pid)
