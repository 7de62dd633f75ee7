"""The embedded Valkey server: started, guarded, stopped, and found again after a crash."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import time

import psutil
import pytest
import redis

from storage.embedded import start_valkey
from storage.errors import ValkeyFailed
from storage.leases import connect


@pytest.fixture
def started(tmp_path):
    """Starts servers in one data directory; ends each that still runs."""
    servers = []

    def start(*arguments):
        servers.append(start_valkey(tmp_path, *arguments))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def test_a_started_server_answers(started):
    server = started()
    assert connect(server.url).ping()
    assert server.is_alive()


def test_the_server_wants_its_password(started):
    server = started()
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=server.port, retry=None).ping()


def test_the_password_is_in_no_argument_list_and_no_printed_record(started):
    server = started(None, "a-password-of-the-test")
    assert connect(server.url).ping()
    assert not any("password" in word for word in psutil.Process(server.pid).cmdline())
    assert "a-password" not in repr(server)


def test_the_server_listens_on_loopback_only(started):
    server = started()
    listening = [c.laddr.ip for c in psutil.Process(server.pid).net_connections() if c.status == "LISTEN"]
    assert listening == ["127.0.0.1"]


def test_a_port_that_is_taken_is_a_typed_error(started):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ValkeyFailed, match="did not start"):
            started(taken.getsockname()[1])


def test_data_survives_a_restart(started):
    first = started()
    connect(first.url).set("queued", "job_1")
    first.stop()
    assert not first.is_alive()
    assert connect(started().url).get("queued") == "job_1"


def test_data_of_the_last_second_may_be_lost_but_not_more_when_the_server_is_killed(started):
    first = started()
    client = connect(first.url)
    client.set("queued", "job_1")
    client.waitaof(1, 0, 5000)  # the file on disk has it
    os.kill(first.pid, signal.SIGKILL)
    first.process.wait()
    assert connect(started().url).get("queued") == "job_1"


def test_stopping_twice_is_a_no_op(started):
    server = started()
    server.stop()
    server.stop()
    assert not server.is_alive()


def test_a_second_server_in_a_directory_in_use_is_refused(started):
    server = started()
    with pytest.raises(ValkeyFailed, match=f"running in .* already .*{server.pid}"):
        started()
    assert server.is_alive()


def test_the_files_are_the_owners_alone(started, tmp_path):
    started()
    assert stat.S_IMODE((tmp_path / "valkey").stat().st_mode) == 0o700


def test_the_orphan_of_a_killed_supervisor_is_ended_by_the_next_start(started, tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from storage.embedded import start_valkey\n"
        "print(start_valkey(Path(sys.argv[1])).pid, flush=True); time.sleep(600)"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    orphan = psutil.Process(int(supervisor.stdout.readline()))
    supervisor.kill()
    supervisor.wait()
    server = started()
    assert connect(server.url).ping()
    assert is_gone(orphan)


def is_gone(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.wait(5) is None or not process.is_running()
    return True


def test_a_server_starts_within_a_second(started):
    begin = time.monotonic()
    started()
    assert time.monotonic() - begin < 1.0
