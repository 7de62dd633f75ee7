"""Names and forms of what storage keeps in Redis. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from common.wire import ReplicaState

CHANNEL = "candela:changes"
INDEX = "candela:leases"
WAKES = "candela:wakes"


@dataclass(frozen=True, slots=True)
class ReplicaLease:
    """A replica as the scheduler last saw it: where it listens, what it may take, what it is doing.

    `secret` opens the socket. `phases_s` are the parts of its cold start, in order.
    """

    replica_id: str
    deployment_id: str
    revision_id: str
    tenant_id: str
    socket_path: str
    secret: str
    state: ReplicaState
    running: int = 0
    waiting: int = 0
    max_sequences: int = 1
    kv_blocks_total: int = 0
    kv_blocks_used: int = 0
    phases_s: tuple[tuple[str, float], ...] = ()

    def __repr__(self) -> str:
        return f"ReplicaLease({self.replica_id}, {self.deployment_id}, {self.state})"


@dataclass(frozen=True, slots=True)
class Change:
    """Something to look at: a deployment was woken, or a lease of it was written or dropped."""

    kind: Literal["wake", "lease"]
    deployment_id: str


def lease_key(replica_id: str) -> str:
    return f"candela:lease:{replica_id}"


def deployment_index(deployment_id: str) -> str:
    return f"candela:leases:{deployment_id}"


def held_key(deployment_id: str) -> str:
    return f"candela:held:{deployment_id}"


def encode_lease(lease: ReplicaLease) -> str:
    return json.dumps(asdict(lease), separators=(",", ":"))


def decode_lease(text: str) -> ReplicaLease:
    raw: dict[str, Any] = json.loads(text)
    raw["state"] = ReplicaState(raw["state"])
    raw["phases_s"] = tuple((str(name), float(s)) for name, s in raw["phases_s"])
    return ReplicaLease(**raw)


def change_message(change: Change) -> str:
    return f"{change.kind} {change.deployment_id}"


def decode_change(text: str) -> Change | None:
    """None for a message that is not ours."""
    kind, _, deployment_id = text.partition(" ")
    if kind == "wake":
        return Change("wake", deployment_id)
    return Change("lease", deployment_id) if kind == "lease" else None


def encode_held(count: int, expires_at: float) -> str:
    return f"{count} {expires_at:.3f}"


def decode_held(text: str, now: float) -> int:
    """The count, or 0 once it is too old to be believed."""
    count, _, expires_at = text.partition(" ")
    return int(count) if float(expires_at) > now else 0
