"""What may be lost, in Redis: replica leases, wake signals, held-request counts. For the scheduler.

`storage.async_leases` is the gateway's form of the same keys. A lease is a string key that expires; an
index by expiry finds it. A wake is a member of a sorted set plus a message, so that it survives a missed
message.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis import Redis
from redis.client import PubSub

from storage.lease_keys import (
    CHANNEL,
    INDEX,
    WAKES,
    Change,
    ReplicaLease,
    change_message,
    decode_change,
    decode_held,
    decode_lease,
    deployment_index,
    encode_held,
    encode_lease,
    held_key,
    lease_key,
)

__all__ = [
    "Change",
    "ReplicaLease",
    "Watch",
    "busy",
    "clear_wake",
    "connect",
    "drop_replica_lease",
    "find_replica_lease",
    "held_requests",
    "live_replicas",
    "set_held_requests",
    "wait_for_change",
    "waiting_wakes",
    "wake",
    "watch",
    "write_replica_lease",
]


def connect(url: str) -> Redis:
    """A client whose calls fail within seconds when the server is gone. It may be shared between threads."""
    return Redis.from_url(
        url, decode_responses=True, socket_connect_timeout=5, socket_timeout=10, health_check_interval=15
    )


def write_replica_lease(r: Redis, lease: ReplicaLease, ttl_s: float, now: float) -> None:
    """Write or renew a lease, and tell those who wait for a replica of that deployment."""
    pipe = r.pipeline(transaction=True)
    pipe.set(lease_key(lease.replica_id), encode_lease(lease), px=_ms(ttl_s))
    for index in (INDEX, deployment_index(lease.deployment_id)):
        pipe.zadd(index, {lease.replica_id: now + ttl_s})
        pipe.zremrangebyscore(index, "-inf", now - 60.0)
    pipe.publish(CHANNEL, change_message(Change("lease", lease.deployment_id)))
    pipe.execute()


def drop_replica_lease(r: Redis, deployment_id: str, replica_id: str) -> None:
    """End a lease at once: the replica drains or is gone."""
    pipe = r.pipeline(transaction=True)
    pipe.delete(lease_key(replica_id))
    pipe.zrem(INDEX, replica_id)
    pipe.zrem(deployment_index(deployment_id), replica_id)
    pipe.publish(CHANNEL, change_message(Change("lease", deployment_id)))
    pipe.execute()


def find_replica_lease(r: Redis, replica_id: str) -> ReplicaLease | None:
    text = r.get(lease_key(replica_id))
    return None if text is None else decode_lease(str(text))


def live_replicas(r: Redis, deployment_id: str | None) -> tuple[ReplicaLease, ...]:
    """Unexpired leases of a deployment, or of all (None), by replica id; in any state."""
    index = INDEX if deployment_id is None else deployment_index(deployment_id)
    ids = sorted(str(i) for i in r.zrange(index, 0, -1))
    if not ids:
        return ()
    texts = r.mget([lease_key(i) for i in ids])
    return tuple(decode_lease(str(text)) for text in texts if text is not None)


def busy(r: Redis) -> bool:
    """Whether any replica has work: a compile's measuring waits, bounded, while it is so."""
    return any(lease.running or lease.waiting for lease in live_replicas(r, None))


def wake(r: Redis, deployment_id: str, now: float) -> None:
    """Ask the scheduler for a replica of a deployment at zero.

    The first wake's time is kept until it is cleared.
    """
    pipe = r.pipeline(transaction=True)
    pipe.zadd(WAKES, {deployment_id: now}, nx=True)
    pipe.publish(CHANNEL, change_message(Change("wake", deployment_id)))
    pipe.execute()


def waiting_wakes(r: Redis) -> dict[str, float]:
    """Deployments that are wanted, each with the time of its first wake."""
    members: Any = r.zrange(WAKES, 0, -1, withscores=True)
    return {str(member): float(score) for member, score in members}


def clear_wake(r: Redis, deployment_id: str) -> None:
    """The wake was answered (a replica is ready) or has become pointless."""
    r.zrem(WAKES, deployment_id)


def set_held_requests(
    r: Redis, gateway_id: str, deployment_id: str, count: int, ttl_s: float, now: float
) -> None:
    """Report how many requests a gateway holds for a deployment; forgotten after `ttl_s`."""
    pipe = r.pipeline(transaction=True)
    if count > 0:
        pipe.hset(held_key(deployment_id), gateway_id, encode_held(count, now + ttl_s))
        pipe.pexpire(held_key(deployment_id), _ms(2 * ttl_s))
    else:
        pipe.hdel(held_key(deployment_id), gateway_id)
    pipe.execute()


def held_requests(r: Redis, deployment_id: str, now: float) -> int:
    """Requests held for a deployment by all gateways that reported lately."""
    values = r.hvals(held_key(deployment_id))
    return sum(decode_held(str(value), now) for value in values)


class Watch:
    """A subscription to changes. Subscribe first, then look, then wait: nothing is missed in between."""

    def __init__(self, pubsub: PubSub) -> None:
        self._pubsub = pubsub

    def next(self, timeout_s: float) -> Change | None:
        """The next change; None when `timeout_s` has passed without one."""
        message = self._pubsub.get_message(ignore_subscribe_messages=True, timeout=timeout_s)
        return None if message is None else decode_change(str(message["data"]))


@contextmanager
def watch(r: Redis) -> Iterator[Watch]:
    """Subscribe for the length of a block."""
    with r.pubsub() as pubsub:  # type: ignore[no-untyped-call]
        pubsub.subscribe(CHANNEL)
        pubsub.get_message(timeout=5.0)  # the subscription's own confirmation
        yield Watch(pubsub)


def wait_for_change(r: Redis, timeout_s: float) -> Change | None:
    """Wait once for a wake or a lease's change; a loop keeps a `watch` instead."""
    with watch(r) as changes:
        return changes.next(timeout_s)


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
