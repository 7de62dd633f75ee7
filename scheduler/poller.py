"""Asks replicas for `/stats` over their Unix sockets, many at a time, without holding up the control loop."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import httpx

from common.clock import Clock
from common.wire import SECRET_HEADER, ReplicaStats
from scheduler.events import Polled
from scheduler.launchers import Endpoint

_THREADS = 8


class Poller(Protocol):
    """Polls a replica; the answer arrives as one `Polled` event."""

    def poll(self, replica_id: str, endpoint: Endpoint, acknowledge: tuple[str, ...]) -> None:
        """Start a poll and return at once. The replica forgets the ended requests in `acknowledge` first."""
        ...

    def forget(self, endpoint: Endpoint) -> None:
        """The replica is gone: drop what is kept for it."""
        ...

    def close(self) -> None:
        """Stop polling; unanswered polls are abandoned."""
        ...


class HttpPoller:
    """Polls with httpx, one connection a replica kept open between polls."""

    def __init__(self, notify: Callable[[Polled], None], clock: Clock, timeout_s: float = 5.0) -> None:
        self._notify = notify
        self._clock = clock
        self._timeout_s = timeout_s
        self._clients: dict[str, httpx.Client] = {}
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="poll")

    def poll(self, replica_id: str, endpoint: Endpoint, acknowledge: tuple[str, ...]) -> None:
        client = self._clients.get(endpoint.socket_path)
        if client is None:
            client = self._client(endpoint)
            self._clients[endpoint.socket_path] = client
        self._pool.submit(self._run, client, replica_id, acknowledge)

    def forget(self, endpoint: Endpoint) -> None:
        client = self._clients.pop(endpoint.socket_path, None)
        if client is not None:
            client.close()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for client in self._clients.values():
            client.close()

    def _client(self, endpoint: Endpoint) -> httpx.Client:
        return httpx.Client(
            transport=httpx.HTTPTransport(uds=endpoint.socket_path),
            base_url="http://replica",
            headers={SECRET_HEADER: endpoint.secret},
            timeout=self._timeout_s,
        )

    def _run(self, client: httpx.Client, replica_id: str, acknowledge: tuple[str, ...]) -> None:
        stats: ReplicaStats | None = None
        done: tuple[str, ...] = ()
        problem = ""
        try:
            if acknowledge:
                body = json.dumps({"request_ids": acknowledge})
                client.post("/stats/ack", content=body).raise_for_status()
                done = acknowledge
            stats = ReplicaStats.from_json(client.get("/stats").raise_for_status().content)
        except (httpx.HTTPError, ValueError, TypeError, KeyError, RuntimeError) as error:
            problem = f"{type(error).__name__}: {error}"
        self._notify(Polled(replica_id, stats, done, self._clock(), problem))
