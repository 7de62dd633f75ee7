"""Which processes make a platform, in which order they start and stop, and what each is told. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .data_dir import DataDir, Secrets


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Addresses fixed for this run; the URLs hold passwords, so they are kept out of logs."""

    host: str
    port: int
    metrics_addr: str
    scheduler_metrics_addr: str
    redis_url: str
    database_url: str

    @property
    def url(self) -> str:
        """Where a client on this machine reaches the gateway."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        return f"http://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A process started as `python -m module`. Those with a higher `stop_rank` are stopped later."""

    name: str
    module: str
    env: Mapping[str, str]
    stop_rank: int
    stop_grace_s: float


def child_specs(
    data_dir: DataDir, secrets: Secrets, endpoints: Endpoints, workers: int
) -> tuple[ChildSpec, ...]:
    """The gateway starts first, people wait for it, and stops first, while replicas still answer streams."""
    shared = {
        "CANDELA_DATABASE_URL": endpoints.database_url,
        "CANDELA_REDIS_URL": endpoints.redis_url,
        "CANDELA_BLOBS_DIR": str(data_dir.blobs),
        "CANDELA_DATA_DIR": str(data_dir.root),
    }
    gateway = {
        "CANDELA_HOST": endpoints.host,
        "CANDELA_PORT": str(endpoints.port),
        "CANDELA_SECRET_KEY": secrets.secret_key,
        "CANDELA_METRICS_ADDR": endpoints.metrics_addr,
    }
    scheduler = {"CANDELA_SCHEDULER_METRICS_ADDR": endpoints.scheduler_metrics_addr}
    return (
        ChildSpec("gateway", "api.main", {**shared, **gateway}, stop_rank=0, stop_grace_s=35.0),
        ChildSpec("scheduler", "scheduler.main", {**shared, **scheduler}, stop_rank=1, stop_grace_s=30.0),
        *(
            ChildSpec(f"worker-{n}" if workers > 1 else "worker", "worker.main", shared, 1, 20.0)
            for n in range(1, workers + 1)
        ),
    )
