"""One HTTP exchange with an ASGI app, driven by hand: read while it streams, leave when you like."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.types import Message

from storage.records import Scope
from tests.support.gateway import Gateway


class Exchange:
    """A running POST. `status` and `body` are what has been sent so far."""

    def __init__(
        self,
        gateway: Gateway,
        path: str,
        body: dict[str, Any],
        scope: Scope = Scope.ADMIN,
        *,
        ends_body: bool = True,
    ) -> None:
        """With `ends_body` false the app waits for more of the body, which never comes."""
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = b""
        self._content = json.dumps(body).encode()
        self._is_sent = False
        self._ends_body = ends_body
        self._has_left = asyncio.Event()
        self._news = asyncio.Event()
        self._reads = asyncio.Event()
        self._reads.set()
        headers = [
            (b"authorization", f"Bearer {gateway.secrets[scope]}".encode()),
            (b"content-type", b"application/json"),
        ]
        asgi = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("gateway.test", 80),
        }
        self.task = asyncio.create_task(gateway.app(asgi, self._receive, self._send))

    async def until(self, text: bytes, timeout_s: float = 5.0) -> None:
        """Wait until `text` was sent."""
        async with asyncio.timeout(timeout_s):
            while text not in self.body:
                self._news.clear()
                await self._news.wait()

    async def leave(self) -> None:
        """Close the connection, and wait until the app is done with it."""
        self._has_left.set()
        await asyncio.wait_for(self.task, 10)

    def stop_reading(self) -> None:
        """Stay connected, but take nothing more: the app's next `send` does not return."""
        self._reads.clear()

    async def done(self) -> None:
        """Wait for the end of the answer."""
        await asyncio.wait_for(self.task, 10)

    async def _receive(self) -> Message:
        if not self._is_sent:
            self._is_sent = True
            return {"type": "http.request", "body": self._content, "more_body": not self._ends_body}
        await self._has_left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self._reads.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        else:
            self.body += message.get("body", b"")
        self._news.set()
