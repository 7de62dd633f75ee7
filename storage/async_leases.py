"""The gateway's form of `storage.leases`: the same keys through an asyncio client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from storage.lease_keys import (
    CHANNEL,
    WAKES,
    Change,
    ReplicaLease,
    change_message,
    decode_change,
    decode_lease,
    deployment_index,
    encode_held,
    held_key,
    lease_key,
)

__all__ = [
    "AsyncWatch",
    "Change",
    "ReplicaLease",
    "connect",
    "live_replicas",
    "set_held_requests",
    "wake",
    "watch",
]


def connect(url: str) -> Redis:
    """A client whose calls fail within seconds when the server is gone. Bound to the running event loop."""
    return Redis.from_url(
        url, decode_responses=True, socket_connect_timeout=5, socket_timeout=10, health_check_interval=15
    )


async def live_replicas(r: Redis, deployment_id: str) -> tuple[ReplicaLease, ...]:
    """Unexpired leases of a deployment, by replica id; in any state."""
    ids = sorted(str(i) for i in await r.zrange(deployment_index(deployment_id), 0, -1))
    if not ids:
        return ()
    texts = await r.mget([lease_key(i) for i in ids])
    return tuple(decode_lease(str(text)) for text in texts if text is not None)


async def wake(r: Redis, deployment_id: str, now: float) -> None:
    """Ask the scheduler for a replica of a deployment at zero."""
    pipe = r.pipeline(transaction=True)
    pipe.zadd(WAKES, {deployment_id: now}, nx=True)
    pipe.publish(CHANNEL, change_message(Change("wake", deployment_id)))
    await pipe.execute()


async def set_held_requests(
    r: Redis, gateway_id: str, deployment_id: str, count: int, ttl_s: float, now: float
) -> None:
    """Report how many requests this gateway holds for a deployment; forgotten after `ttl_s`."""
    pipe = r.pipeline(transaction=True)
    if count > 0:
        pipe.hset(held_key(deployment_id), gateway_id, encode_held(count, now + ttl_s))
        pipe.pexpire(held_key(deployment_id), max(1, round(2000 * ttl_s)))
    else:
        pipe.hdel(held_key(deployment_id), gateway_id)
    await pipe.execute()


class AsyncWatch:
    """A subscription to changes; a gateway has one, whose reader wakes the requests that it holds."""

    def __init__(self, pubsub: PubSub) -> None:
        self._pubsub = pubsub

    async def next(self, timeout_s: float) -> Change | None:
        """The next change; None when `timeout_s` has passed without one."""
        message = await self._pubsub.get_message(ignore_subscribe_messages=True, timeout=timeout_s)
        return None if message is None else decode_change(str(message["data"]))


@asynccontextmanager
async def watch(r: Redis) -> AsyncIterator[AsyncWatch]:
    """Subscribe for the length of a block. Subscribe first, then look, then wait."""
    pubsub = r.pubsub()
    try:
        await pubsub.subscribe(CHANNEL)
        await pubsub.get_message(timeout=5.0)  # the subscription's own confirmation
        yield AsyncWatch(pubsub)
    finally:
        await pubsub.aclose()  # type: ignore[no-untyped-call]
