"""The scheduler's settings: every `CANDELA_` variable it reads, with defaults that run on a laptop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from common.machine import usable_cores, usable_memory_bytes
from scheduler.autoscaler import ScalingConfig
from scheduler.placement import Node
from scheduler.placing import NodeRules
from scheduler.plan import Deadlines
from scheduler.rules import LoopRules

_MIB = 1 << 20
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV")
_INHERITED_PREFIXES = ("OMP_", "OPENBLAS_", "MKL_", "CANDELA_REPLICA_")


class SchedulerSettings(BaseSettings):
    """Read once, in `scheduler.main`; passed down as values."""

    model_config = SettingsConfigDict(env_prefix="CANDELA_", frozen=True, extra="ignore")

    data_dir: Path = Path("~/.candela")
    database_url: str | None = None
    redis_url: str = "redis://127.0.0.1:6379/0"
    blobs_dir: Path | None = None
    scheduler_metrics_addr: str = "127.0.0.1:9465"
    """host:port of the scheduler's /metrics, with every replica's figures."""

    log_level: str = "INFO"

    tick_s: Annotated[float, Field(gt=0, le=60)] = 2.0
    """How often deployments are looked at when nothing happens; wakes are acted on at once."""

    lease_ttl_s: Annotated[float, Field(gt=0)] = 10.0
    """A replica that was not heard of for this long gets no requests."""

    poll_timeout_s: Annotated[float, Field(gt=0)] = 5.0
    """How long one poll of a replica's statistics may take."""

    poll_patience_s: Annotated[float, Field(gt=0)] = 30.0
    """A replica that answers no poll for this long is killed."""

    start_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    """How long a replica may take from its start to its first forward pass."""

    drain_timeout_s: Annotated[float, Field(gt=0)] = 90.0
    """How long a replica that must go may take; more than the 60 s that it gives its streams itself."""

    stop_grace_s: Annotated[float, Field(ge=0)] = 10.0
    """How long replicas may finish their streams when the scheduler itself is stopped."""

    meter_s: Annotated[float, Field(ge=1)] = 60.0
    """How often replica-seconds are written to the ledger."""

    stable_window_s: Annotated[float, Field(ge=6, le=3600)] = 60.0
    """The window over which the autoscaler averages demand; a tenth of it decides on panic."""

    scale_down_delay_s: Annotated[float, Field(ge=0, le=3600)] = 0.0
    """Fewer replicas only once this long no more were wanted."""

    node_memory_bytes: Annotated[int, Field(gt=0)] | None = None
    """What replicas may be promised in all; by default nine tenths of this machine's memory."""

    node_cores: Annotated[float, Field(gt=0)] | None = None
    """What replicas may be promised in all; by default four times the cores, as idle replicas cost no CPU."""

    cores_per_replica: Annotated[float, Field(gt=0)] = 1.0
    """What one replica counts for in placement."""

    kv_budget_bytes: Annotated[int, Field(gt=0)] = 2048 * _MIB
    """The largest KV pool of one replica; it limits a deployment's ceiling in tokens."""

    replica_overhead_bytes: Annotated[int, Field(gt=0)] = 512 * _MIB
    """What a replica needs beside weights and KV pool."""

    @property
    def home(self) -> Path:
        return self.data_dir.expanduser().resolve()

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.home / 'candela.db'}"

    @property
    def blobs(self) -> Path:
        return (self.blobs_dir or self.home / "blobs").expanduser().resolve()

    def metrics_host_port(self) -> tuple[str, int]:
        host, _, port = self.scheduler_metrics_addr.rpartition(":")
        return host or "127.0.0.1", int(port)

    def rules(self) -> LoopRules:
        """What these settings mean to the control loop; reads the machine's size where they leave it open."""
        memory_bytes = self.node_memory_bytes or usable_memory_bytes() * 9 // 10
        cores = self.node_cores or max(4.0 * usable_cores(), 1.0)
        return LoopRules(
            node=NodeRules(
                node=Node(memory_bytes, cores),
                kv_budget_bytes=self.kv_budget_bytes,
                cores_per_replica=self.cores_per_replica,
                overhead_bytes=self.replica_overhead_bytes,
            ),
            tick_s=self.tick_s,
            scaling=ScalingConfig(
                stable_window_s=self.stable_window_s,
                panic_window_s=self.stable_window_s / 10,
                scale_down_delay_s=self.scale_down_delay_s,
            ),
            deadlines=Deadlines(start_s=self.start_timeout_s, drain_s=self.drain_timeout_s),
            poll_patience_s=self.poll_patience_s,
            meter_s=self.meter_s,
        )


def replica_environment(environment: dict[str, str]) -> dict[str, str]:
    """What a replica inherits: how to find programs and libraries, and no credentials."""
    return {
        name: value
        for name, value in environment.items()
        if name in _INHERITED or name.startswith(_INHERITED_PREFIXES)
    }
