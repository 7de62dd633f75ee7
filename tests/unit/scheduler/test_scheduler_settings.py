"""Settings of the scheduler and what a replica may inherit."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.settings import SchedulerSettings, replica_environment


def test_defaults_run_on_a_laptop() -> None:
    rules = SchedulerSettings(data_dir=Path("/data")).rules()
    assert rules.node.node.memory_bytes > 0
    assert rules.scaling.panic_window_s == 6.0


def test_everything_lies_in_the_data_directory() -> None:
    settings = SchedulerSettings(data_dir=Path("/data"))
    assert (settings.database, settings.blobs) == ("sqlite:////data/candela.db", Path("/data/blobs"))


def test_the_environment_names_each_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANDELA_SCHEDULER_METRICS_ADDR", "0.0.0.0:9999")
    assert SchedulerSettings().metrics_host_port() == ("0.0.0.0", 9999)


def test_a_replica_inherits_no_credentials() -> None:
    environment = {
        "PATH": "/bin",
        "CANDELA_DATABASE_URL": "postgresql://user:password@host/db",
        "CANDELA_REDIS_URL": "redis://:password@host",
        "CANDELA_SECRET_KEY": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "OMP_NUM_THREADS": "2",
    }
    assert replica_environment(environment) == {"PATH": "/bin", "OMP_NUM_THREADS": "2"}
