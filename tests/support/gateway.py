"""A gateway in this process: the real app on SQLite and a disk store, with leases kept in memory."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from api.app import create_app
from api.main import build_services
from api.services import Services
from api.settings import GatewaySettings
from storage import deployments, keys, models, revisions
from storage.db import Database, migrate
from storage.lease_keys import ReplicaLease
from storage.records import Build, Deployment, ScalingPolicy, Scope, Tenant

URL = "http://gateway.test"


@dataclass
class MemoryLeases:
    """`api.dispatch.leases.Leases` without Redis. `on_wake` may put leases, as a scheduler would."""

    leases: dict[str, ReplicaLease] = field(default_factory=dict)
    woken: list[str] = field(default_factory=list)
    held: dict[str, int] = field(default_factory=dict)
    most_held: int = 0
    on_wake: Callable[[str], None] = field(default=lambda deployment_id: None)
    listeners: list[Callable[[str], None]] = field(default_factory=list)
    is_answering: bool = True

    async def start(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def live(self, deployment_id: str) -> tuple[ReplicaLease, ...]:
        return tuple(lease for lease in self.leases.values() if lease.deployment_id == deployment_id)

    async def wake(self, deployment_id: str) -> None:
        self.woken.append(deployment_id)
        self.on_wake(deployment_id)

    async def report_held(self, deployment_id: str, count: int) -> None:
        self.held[deployment_id] = count
        self.most_held = max(self.most_held, count)

    def listen(self, on_change: Callable[[str], None]) -> None:
        self.listeners.append(on_change)

    async def is_up(self) -> bool:
        return self.is_answering

    def put(self, lease: ReplicaLease) -> None:
        self.leases[lease.replica_id] = lease
        self._tell(lease.deployment_id)

    def drop(self, replica_id: str) -> None:
        self._tell(self.leases.pop(replica_id).deployment_id)

    def _tell(self, deployment_id: str) -> None:
        for listener in self.listeners:
            listener(deployment_id)


@dataclass
class Gateway:
    """The app, its parts, and keys of one tenant for each scope."""

    app: FastAPI
    services: Services
    leases: MemoryLeases
    database: Database
    tenant: Tenant
    secrets: dict[Scope, str]
    enqueued: list[str]

    def client(self, secret: str | None = None) -> httpx.AsyncClient:
        """An HTTP client of the app; by default with the admin key."""
        key = self.secrets[Scope.ADMIN] if secret is None else secret
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app),
            base_url=URL,
            headers={"authorization": f"Bearer {key}"} if key else {},
        )


def make_gateway(folder: Path, **settings: object) -> Gateway:
    """Build it on a fresh database in `folder`. Enter `gateway.app.router.lifespan_context(app)` to run
    it.
    """
    url = f"sqlite:///{folder / 'candela.db'}"
    migrate(url)
    database = Database(url)
    with database.write() as conn:
        tenant = keys.create_tenant(conn, "acme", time.time())
        secrets = {s: keys.create_key(conn, tenant.id, s.value, [s], time.time())[1] for s in Scope}
    enqueued: list[str] = []
    leases = MemoryLeases()
    given = {"data_dir": folder, "database_url": url, "secret_key": "s" * 32, "prompt_workers": 1} | settings
    services = build_services(GatewaySettings(**given), leases, enqueued.append)
    return Gateway(create_app(services), services, leases, database, tenant, secrets, enqueued)


VOCAB = 1000
STOP_ID = 999


def deploy(gateway: Gateway, name: str = "tiny", **facts: Any) -> Deployment:
    """A ready revision, deployed under `name`; arguments as `deploy_into` has them."""
    blobs = gateway.services.settings.blobs
    return deploy_into(gateway.database, blobs, gateway.tenant, name, **facts)


def deploy_into(
    database: Database,
    blobs: Path,
    tenant: Tenant,
    name: str,
    *,
    context: int = 64,
    kv_ceiling_tokens: int = 1024,
    generation_config: dict[str, object] | None = None,
    write_tokenizer: Callable[[Path], None] = lambda folder: None,
) -> Deployment:
    """A ready revision with tokenizer files that say what the arguments say, deployed under `name`."""
    prefix = f"artifacts/{tenant.id}/{name}"
    folder = blobs / prefix / "tokenizer"
    folder.mkdir(parents=True)
    write_tokenizer(folder)
    facts: dict[str, dict[str, object]] = {
        "candela.json": {
            "bos_id": None,
            "add_bos": False,
            "stop_ids": [STOP_ID],
            "context_length": context,
            "vocab_size": VOCAB,
        },
        "generation_config.json": generation_config or {},
    }
    for file, content in facts.items():
        if not (folder / file).exists():
            (folder / file).write_text(json.dumps(content))
    now = time.time()
    build = Build(f"{name}0123456789abcdef", f"{prefix}/artifact", f"{prefix}/tokenizer")
    with database.write() as conn:
        model = models.ensure_model(conn, tenant.id, name, now)
        made = revisions.create_revision(conn, tenant.id, model.id, (), {}, now)
        revisions.set_revision_compiling(conn, made.id)
        revision = revisions.set_revision_ready(conn, made.id, build, now)
        policy = ScalingPolicy()
        return deployments.create_deployment(conn, tenant.id, name, revision, policy, kv_ceiling_tokens, now)
