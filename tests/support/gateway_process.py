"""The gateway as a process of its own, as `candela up` starts it, with a model deployed in its database."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from storage import keys
from storage.db import Database, migrate
from storage.records import Deployment, Scope, Tenant
from tests.support.gateway import deploy_into
from tests.support.tiny_tokenizer import write_tiny_tokenizer

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class GatewayProcess:
    """`start` it, `kill` it, start it again: the data directory stays."""

    home: Path
    redis_url: str
    port: int
    metrics_port: int
    database: Database
    tenant: Tenant
    secret: str
    deployment: Deployment
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, **settings: str) -> None:
        """Answers once the gateway is ready."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("CANDELA_")}
        env |= {
            "CANDELA_DATA_DIR": str(self.home),
            "CANDELA_DATABASE_URL": f"sqlite:///{self.home / 'candela.db'}",
            "CANDELA_REDIS_URL": self.redis_url,
            "CANDELA_PORT": str(self.port),
            "CANDELA_SECRET_KEY": "s" * 32,
            "CANDELA_METRICS_ADDR": f"127.0.0.1:{self.metrics_port}",
            "CANDELA_PROMPT_WORKERS": "1",
            "CANDELA_RESERVATION_LEASE_S": "0.6",
        }
        with (self.home / "gateway.log").open("ab") as log:
            command = [sys.executable, "-m", "api.main"]
            self.process = subprocess.Popen(command, env={**env, **settings}, cwd=ROOT, stderr=log)
        deadline = time.monotonic() + 30
        while not self._is_ready():
            assert self.process.poll() is None, (self.home / "gateway.log").read_text()[-2000:]
            assert time.monotonic() < deadline, (self.home / "gateway.log").read_text()[-2000:]
            time.sleep(0.05)

    def send_signal(self, number: int) -> None:
        assert self.process is not None, "it was started"
        self.process.send_signal(number)

    def kill(self) -> None:
        """As a power cut would."""
        self.send_signal(signal.SIGKILL)
        self.wait()

    def wait(self, timeout_s: float = 20.0) -> int:
        assert self.process is not None, "it was started"
        return self.process.wait(timeout_s)

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health/ready", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False


@contextmanager
def gateway_process(home: Path, redis_url: str) -> Iterator[GatewayProcess]:
    """A prepared data directory; the process is killed at the end, if it still runs."""
    url = f"sqlite:///{home / 'candela.db'}"
    migrate(url)
    database = Database(url)
    with database.write() as conn:
        tenant = keys.create_tenant(conn, "acme", time.time())
        _, secret = keys.create_key(conn, tenant.id, "admin", [Scope.ADMIN], time.time())
    deployment = deploy_into(database, home / "blobs", tenant, "chatty", write_tokenizer=write_tiny_tokenizer)
    made = GatewayProcess(home, redis_url, _free_port(), _free_port(), database, tenant, secret, deployment)
    try:
        yield made
    finally:
        if made.process is not None and made.process.poll() is None:
            made.kill()
        database.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
