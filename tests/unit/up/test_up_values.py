"""The supervisor's pure parts and its files."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from candela.up import AlreadyRunning, DataDir, PortTaken, StartFailed
from candela.up.data_dir import Secrets, load_secrets
from candela.up.identity import ProcessIdentity, identify, is_alive
from candela.up.lock import hold_lock, is_locked
from candela.up.policy import RestartPolicy
from candela.up.ports import claim_port, claim_preferred
from candela.up.specs import Endpoints, child_specs
from candela.up.state import ChildState, UpState, read_state, write_state

ENDPOINTS = Endpoints(
    "0.0.0.0", 8080, "127.0.0.1:1", "127.0.0.1:2", "redis://:pw@127.0.0.1:3/0", "sqlite:////x.db"
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_back_off_doubles_up_to_its_limit() -> None:
    policy = RestartPolicy(first_s=0.2, longest_s=10.0)
    assert [policy.delay_s(n) for n in (1, 2, 3, 7, 500)] == [0.2, 0.4, 0.8, 10.0, 10.0]


def test_a_process_that_ran_well_starts_afresh() -> None:
    policy = RestartPolicy(steady_s=30.0)
    assert policy.failures_after(5, ran_s=29.0) == 6
    assert policy.failures_after(5, ran_s=30.0) == 1


def test_the_data_dir_is_private(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path / "home")
    data_dir.create()
    assert {mode(p) for p in (data_dir.root, data_dir.run, data_dir.blobs, data_dir.logs)} == {0o700}


def test_a_path_too_long_for_sockets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match="too long a path"):
        DataDir(tmp_path / ("x" * 80)).create()


def test_secrets_are_made_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "secrets.json"
    made = load_secrets(path)
    assert len(made.secret_key) >= 32
    assert load_secrets(path) == made
    assert mode(path) == 0o600
    assert made.secret_key not in repr(made)


def test_broken_secrets_are_an_error_not_new_secrets(tmp_path: Path) -> None:
    path = tmp_path / "secrets.json"
    path.write_text("{")
    with pytest.raises(StartFailed, match="cannot be read"):
        load_secrets(path)


def test_a_pid_given_to_another_process_is_not_the_one_meant() -> None:
    me = identify(os.getpid())
    assert is_alive(me)
    assert not is_alive(ProcessIdentity(me.pid, me.started_at - 100.0))


def test_the_state_file_reads_back_and_is_private(tmp_path: Path) -> None:
    me = identify(os.getpid())
    state = UpState(me, "http://x:1", True, False, (ChildState("gateway", me, 2),))
    write_state(tmp_path / "up.json", state)
    assert read_state(tmp_path / "up.json") == state
    assert mode(tmp_path / "up.json") == 0o600


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"supervisor": 3}'])
def test_a_state_file_of_another_form_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "up.json").write_text(text)
    assert read_state(tmp_path / "up.json") is None


def test_a_data_dir_has_one_holder(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path)
    data_dir.create()
    with hold_lock(data_dir):
        assert is_locked(data_dir)
        with pytest.raises(AlreadyRunning, match="candela down"), hold_lock(data_dir):
            pass
    assert not is_locked(data_dir)


def test_a_taken_port_is_named_and_avoided() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=str(port)):
            claim_port("127.0.0.1", port)
        assert claim_preferred("127.0.0.1", port) != port


def test_the_gateway_starts_first_and_stops_first(tmp_path: Path) -> None:
    specs = child_specs(DataDir(tmp_path), Secrets("s"), ENDPOINTS, workers=2)
    assert [s.name for s in specs] == ["gateway", "scheduler", "worker-1", "worker-2"]
    assert specs[0].stop_rank < min(s.stop_rank for s in specs[1:])


def test_only_the_gateway_is_told_the_signing_key(tmp_path: Path) -> None:
    specs = child_specs(DataDir(tmp_path), Secrets("s"), ENDPOINTS, workers=1)
    assert [s.name for s in specs if "CANDELA_SECRET_KEY" in s.env] == ["gateway"]


def test_a_wildcard_host_is_reached_over_loopback() -> None:
    assert ENDPOINTS.url == "http://127.0.0.1:8080"
