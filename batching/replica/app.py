"""The replica's HTTP surface: a small ASGI application, every route of which wants the secret.

`POST /generate` answers 200 and NDJSON for everything that is about the request, refusals included, with
`Failed` as the last line then. Other statuses mean that the call itself was wrong, and carry one `Failed`
line: 401 no secret, 404 no such route, 405, 400 not a request, 408 too slow, 413 too large.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from batching.replica.parse import parse_request
from batching.replica.stream import FrameStream
from common.errors import InvalidInput, Overloaded
from common.wire import (
    SECRET_HEADER,
    Ended,
    Failed,
    Frame,
    GenerateRequest,
    ReplicaState,
    ReplicaStats,
    encode_frame,
)

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Route = Callable[[Receive, Send], Awaitable[None]]

MAX_BODY_BYTES = 32 << 20
_READ_TIMEOUT_S = 30.0


class Service(Protocol):
    """What the routes act on."""

    @property
    def state(self) -> ReplicaState: ...
    def stats(self) -> ReplicaStats: ...
    def acknowledge(self, request_ids: list[str]) -> None: ...
    def drain(self) -> None: ...
    def submit(self, request: GenerateRequest, wake: Callable[[], None]) -> FrameStream: ...
    def abort(self, request_id: str, stream: FrameStream) -> None: ...


class BadCall(Exception):
    """A call that is answered with a status other than 200."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.failed = Failed(code, message)


class ReplicaApp:
    """ASGI 3, HTTP only. `send_timeout_s` is how long one write may wait for its reader."""

    def __init__(self, service: Service, secret: str, send_timeout_s: float) -> None:
        self._service = service
        self._secret = secret.encode()
        self._send_timeout_s = send_timeout_s
        self._routes: dict[tuple[str, str], Route] = {
            ("POST", "/generate"): self._generate,
            ("GET", "/stats"): self._stats,
            ("POST", "/stats/ack"): self._acknowledge,
            ("POST", "/drain"): self._drain,
            ("GET", "/health/ready"): self._ready,
        }

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "the server is configured for HTTP only"
        try:
            self._check_secret(scope["headers"])
            await self._route(scope["method"], scope["path"])(receive, send)
        except BadCall as bad:
            await _answer(send, bad.status, encode_frame(bad.failed))

    def _check_secret(self, headers: list[tuple[bytes, bytes]]) -> None:
        name = SECRET_HEADER.encode()
        shown = next((value for key, value in headers if key == name), b"")
        if not hmac.compare_digest(shown, self._secret):
            raise BadCall(401, "invalid_secret", "this replica is called with its own secret only")

    def _route(self, method: str, path: str) -> Route:
        route = self._routes.get((method, path))
        if route is None:
            is_known = any(path == known for _, known in self._routes)
            status, code = (405, "method_not_allowed") if is_known else (404, "not_found")
            raise BadCall(status, code, f"no route {method} {path}")
        return route

    async def _stats(self, _receive: Receive, send: Send) -> None:
        await _answer(send, 200, self._service.stats().to_json().encode(), _JSON)

    async def _acknowledge(self, receive: Receive, send: Send) -> None:
        body = await _read_body(receive)
        try:
            request_ids = [str(i) for i in json.loads(body)["request_ids"]]
        except (ValueError, KeyError, TypeError) as error:
            raise BadCall(400, "invalid_request", 'expected {"request_ids": [...]}') from error
        self._service.acknowledge(request_ids)
        await _answer(send, 200, b"{}", _JSON)

    async def _drain(self, _receive: Receive, send: Send) -> None:
        self._service.drain()
        await _answer(send, 200, b"{}", _JSON)

    async def _ready(self, _receive: Receive, send: Send) -> None:
        state = self._service.state
        status = 200 if state is ReplicaState.READY else 503
        await _answer(send, status, json.dumps({"state": state}).encode(), _JSON)

    async def _generate(self, receive: Receive, send: Send) -> None:
        request = _parse(await _read_body(receive))
        refusal = _refusal(self._service.state)
        if refusal is not None:
            await _answer(send, 200, encode_frame(refusal))
            return
        ready = asyncio.Event()
        try:
            stream = self._service.submit(request, ready.set)
        except Overloaded as error:
            await _answer(send, 200, encode_frame(Failed(error.code, str(error))))
            return
        reader = _Reader(receive, ready)
        try:
            async with asyncio.TaskGroup() as tasks:
                watch = tasks.create_task(reader.watch())
                await self._relay(reader, stream, send)
                watch.cancel()
        finally:
            if not stream.is_over:
                self._service.abort(request.request_id, stream)

    async def _relay(self, reader: _Reader, stream: FrameStream, send: Send) -> None:
        """Send what comes, as much as there is in one write, until the last frame or until nobody reads."""
        await _start(send, 200, _NDJSON)
        is_over = False
        while not is_over and not reader.is_gone:
            await reader.ready.wait()
            reader.ready.clear()
            frames = stream.take()
            is_over = bool(frames) and isinstance(frames[-1], Ended | Failed)
            if frames and not await self._write(send, frames, is_over):
                return

    async def _write(self, send: Send, frames: list[Frame], is_over: bool) -> bool:
        """Send frames; false when the reader does not read."""
        body = b"".join(encode_frame(frame) for frame in frames)
        try:
            async with asyncio.timeout(self._send_timeout_s):
                await send({"type": "http.response.body", "body": body, "more_body": not is_over})
        except TimeoutError:
            log.warning("reader_stalled")
            return False
        return True


class _Reader:
    """Who reads one stream: `ready` is set when there is something to send, or when it has gone."""

    def __init__(self, receive: Receive, ready: asyncio.Event) -> None:
        self._receive = receive
        self.ready = ready
        self.is_gone = False

    async def watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.is_gone = True
        self.ready.set()


_JSON, _NDJSON = b"application/json", b"application/x-ndjson"


def _refusal(state: ReplicaState) -> Failed | None:
    if state is ReplicaState.READY:
        return None
    is_early = state is ReplicaState.STARTING
    message = "this replica is not ready yet" if is_early else "this replica takes no more requests"
    return Failed(state, message, retryable=True)


def _parse(body: bytes) -> GenerateRequest:
    try:
        return parse_request(body)
    except InvalidInput as error:
        raise BadCall(400, error.code, str(error)) from error


async def _read_body(receive: Receive) -> bytes:
    try:
        async with asyncio.timeout(_READ_TIMEOUT_S):
            return b"".join([part async for part in _body_parts(receive)])
    except TimeoutError as error:
        raise BadCall(408, "timeout", "the body took too long") from error


async def _body_parts(receive: Receive) -> AsyncIterator[bytes]:
    size, has_more = 0, True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadCall(400, "client_gone", "the body is incomplete")
        part: bytes = message.get("body", b"")
        size += len(part)
        has_more = message.get("more_body", False)
        if size > MAX_BODY_BYTES:
            raise BadCall(413, "request_too_large", f"a body may have {MAX_BODY_BYTES} bytes")
        yield part


async def _start(send: Send, status: int, content_type: bytes) -> None:
    headers = [(b"content-type", content_type)]
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _answer(send: Send, status: int, body: bytes, content_type: bytes = _NDJSON) -> None:
    await _start(send, status, content_type)
    await send({"type": "http.response.body", "body": body, "more_body": False})
