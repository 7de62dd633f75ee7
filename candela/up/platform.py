"""Starting the whole platform on one machine and keeping it running until a stop signal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from candela.client.config import read_config
from storage.db import migrate

from .admin_key import ensure_client_file
from .broker import ValkeyService
from .child import ChildService
from .data_dir import DataDir, Secrets, load_secrets
from .errors import StartFailed
from .health import is_healthy
from .identity import end_all, identify
from .lock import hold_lock
from .ports import claim_port, claim_preferred
from .settings import UpSettings
from .signals import SignalWaiter
from .specs import Endpoints, child_specs
from .state import ChildState, UpState, read_state, write_state
from .supervisor import Supervisor

_LEFTOVER_GRACE_S = 10.0
_METRICS_HOST = "127.0.0.1"
_METRICS_PORT, _SCHEDULER_METRICS_PORT = 9464, 9465


@dataclass(frozen=True, slots=True)
class Ready:
    """What to tell the person who started it. `new_admin_key` is there when this start made one."""

    url: str
    data_dir: str
    took_s: float
    new_admin_key: str | None

    @property
    def dashboard_url(self) -> str:
        return f"{self.url}/dashboard"


def run_platform(settings: UpSettings, env: Mapping[str, str], on_ready: Callable[[Ready], None]) -> None:
    """Start everything, call `on_ready` once the gateway answers, and return after a stop signal.

    Raises:
        AlreadyRunning: another process runs this data directory.
        StartFailed: something did not start; everything that did is stopped again.
    """
    began = time.monotonic()
    data_dir = DataDir(settings.home)
    data_dir.create()
    with hold_lock(data_dir), SignalWaiter() as signals:
        _end_leftovers(data_dir)
        record = _Record(data_dir)
        supervisor = Supervisor(signals, record.write_children)
        try:
            made_key = _start(supervisor, record, settings, data_dir, env)
            is_up = supervisor.wait_until(lambda: is_healthy(record.state.url), settings.ready_timeout_s)
            if is_up:
                record.write_ready()
                on_ready(_ready(data_dir, record.state.url, time.monotonic() - began, made_key))
                supervisor.run()
        finally:
            supervisor.stop()
            data_dir.state_file.unlink(missing_ok=True)


class _Record:
    """Keeps `run/up.json` in step with what runs."""

    def __init__(self, data_dir: DataDir) -> None:
        self._path = data_dir.state_file
        self.state = UpState(identify(os.getpid()), "", False, False, ())

    def write_children(self, children: tuple[ChildState, ...]) -> None:
        self.write(replace(self.state, children=children))

    def write_ready(self) -> None:
        self.write(replace(self.state, is_ready=True))

    def write(self, state: UpState) -> None:
        self.state = state
        write_state(self._path, state)


def _start(
    supervisor: Supervisor,
    record: _Record,
    settings: UpSettings,
    data_dir: DataDir,
    env: Mapping[str, str],
) -> bool:
    secrets = load_secrets(data_dir.secrets_file)
    port = claim_port(settings.host, settings.port)
    redis_url = _redis_url(supervisor, settings, data_dir)
    endpoints = _endpoints(settings, data_dir, port, redis_url)
    migrate(endpoints.database_url)
    made_key = ensure_client_file(data_dir, endpoints.database_url, endpoints.url, time.time())
    record.write(replace(record.state, url=endpoints.url, made_admin_key=made_key))
    _add_children(supervisor, settings, data_dir, secrets, endpoints, env)
    return made_key


def _redis_url(supervisor: Supervisor, settings: UpSettings, data_dir: DataDir) -> str:
    if settings.redis_url is not None:
        return settings.redis_url.get_secret_value()
    valkey = ValkeyService(data_dir)
    supervisor.add(valkey)
    return valkey.url


def _endpoints(settings: UpSettings, data_dir: DataDir, port: int, redis_url: str) -> Endpoints:
    return Endpoints(
        host=settings.host,
        port=port,
        metrics_addr=settings.metrics_addr or _metrics_addr(_METRICS_PORT),
        scheduler_metrics_addr=settings.scheduler_metrics_addr or _metrics_addr(_SCHEDULER_METRICS_PORT),
        redis_url=redis_url,
        database_url=settings.database_url.get_secret_value()
        if settings.database_url is not None
        else data_dir.database_url,
    )


def _metrics_addr(preferred_port: int) -> str:
    return f"{_METRICS_HOST}:{claim_preferred(_METRICS_HOST, preferred_port)}"


def _add_children(
    supervisor: Supervisor,
    settings: UpSettings,
    data_dir: DataDir,
    secrets: Secrets,
    endpoints: Endpoints,
    env: Mapping[str, str],
) -> None:
    for spec in child_specs(data_dir, secrets, endpoints, settings.workers):
        supervisor.add(ChildService(spec, env, data_dir.logs, data_dir.root))


def _end_leftovers(data_dir: DataDir) -> None:
    """After a kill -9 of the supervisor its children may still be stopping; the new ones need their place."""
    state = read_state(data_dir.state_file)
    if state is not None:
        end_all([child.identity for child in state.children], _LEFTOVER_GRACE_S)


def _ready(data_dir: DataDir, url: str, took_s: float, made_key: bool) -> Ready:
    key = read_config(data_dir.client_file).api_key if made_key else None
    return Ready(url, str(data_dir.root), took_s, key)


__all__ = ["Ready", "StartFailed", "run_platform"]
