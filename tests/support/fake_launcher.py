"""A launcher and a poller without processes: they note what they are asked, tests say what happens."""

from __future__ import annotations

from dataclasses import dataclass, field

from common.wire import ReplicaState, ReplicaStats, RequestCounts
from scheduler.launchers import BecameReady, Endpoint, Exited, LaunchFailed, ReplicaSpec


def stats(replica_id: str, **fields: object) -> ReplicaStats:
    """A report of an idle replica, changed by `fields`."""
    values: dict[str, object] = {
        "replica_id": replica_id,
        "state": ReplicaState.READY,
        "running": 0,
        "waiting": 0,
        "max_sequences": 8,
        "kv_blocks_total": 64,
        "kv_blocks_used": 0,
        "idle_s": 0.0,
        "phases_s": (("map", 0.25), ("warmup", 0.5)),
        **fields,
    }
    return ReplicaStats(**values)  # type: ignore[arg-type]


def counts(request_id: str, prompt: int, completion: int) -> RequestCounts:
    return RequestCounts(request_id, "ten_1", prompt, completion)


@dataclass
class FakeLauncher:
    """`refusal` makes the next launches fail; `leftovers` are what `adopt_leftovers` finds."""

    specs: list[ReplicaSpec] = field(default_factory=list)
    terminated: list[str] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    leftovers: tuple[str, ...] = ()
    refusal: str | None = None

    def launch(self, spec: ReplicaSpec) -> Endpoint:
        if self.refusal is not None:
            raise LaunchFailed(self.refusal)
        self.specs.append(spec)
        return Endpoint(f"/run/{spec.replica_id}.sock", f"secret-{spec.replica_id}", 4242)

    def terminate(self, replica_id: str) -> None:
        self.terminated.append(replica_id)

    def kill(self, replica_id: str) -> None:
        self.killed.append(replica_id)

    def adopt_leftovers(self) -> tuple[str, ...]:
        return self.leftovers

    def close(self, grace_s: float) -> None:
        return None

    @property
    def last(self) -> str:
        """The id of the replica launched last."""
        return self.specs[-1].replica_id


@dataclass
class FakePoller:
    """Notes each poll and what it acknowledged."""

    polls: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    def poll(self, replica_id: str, endpoint: Endpoint, acknowledge: tuple[str, ...]) -> None:
        self.polls.append((replica_id, acknowledge))

    def forget(self, endpoint: Endpoint) -> None:
        self.forgotten.append(endpoint.socket_path)

    def close(self) -> None:
        return None


def became_ready(replica_id: str, at: float, **fields: object) -> BecameReady:
    return BecameReady(replica_id, stats(replica_id, **fields), at)


def crashed(replica_id: str, at: float, detail: str = "exited with code 1") -> Exited:
    return Exited(replica_id, is_crash=True, detail=detail, at=at)


def went(replica_id: str, at: float) -> Exited:
    return Exited(replica_id, is_crash=False, detail="exited with code 0", at=at)
