"""Calling one replica: HTTP/1.1 over its Unix socket, frames out as they arrive.

Raw h11 on an asyncio stream: a token costs a few dozen microseconds here. One connection a call, because
closing it is how a call is aborted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import h11

from common.errors import PlatformError
from common.wire import SECRET_HEADER, Frame, GenerateRequest, decode_frame

_READ_BYTES = 1 << 16
_CONNECT_LIMIT_S = 5.0
_MAX_LINE_BYTES = 64 << 20


class ReplicaUnavailable(PlatformError):
    """It did not take the call: not there, draining, or full. Another one may; nothing was generated."""

    code = "replica_unavailable"


class ReplicaBroke(PlatformError):
    """It took the call and its stream ended without a last frame."""

    code = "replica_lost"


async def generate(
    socket_path: str, secret: str, request: GenerateRequest, silence_s: Callable[[], float]
) -> AsyncGenerator[list[Frame], None]:
    """Frames of one call, in the groups they were read in; closing the iterator aborts the call.

    `silence_s()` says before each read how long it may take. Raises: ReplicaUnavailable, ReplicaBroke (also
    when the replica is silent for longer), and what `silence_s` raises.
    """
    try:
        async with asyncio.timeout(_CONNECT_LIMIT_S):
            reader, writer = await asyncio.open_unix_connection(socket_path)
    except (OSError, TimeoutError) as error:
        raise ReplicaUnavailable(f"the replica does not answer: {error}") from error
    try:
        async with aclosing(_exchange(reader, writer, secret, request, silence_s)) as lines:
            async for frames in lines:
                yield frames
    finally:
        writer.close()


async def _exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    secret: str,
    request: GenerateRequest,
    silence_s: Callable[[], float],
) -> AsyncGenerator[list[Frame], None]:
    connection = h11.Connection(h11.CLIENT)
    writer.write(_opening(connection, secret, request.to_json().encode()))
    pending = b""
    has_head = False
    while True:
        try:
            async with asyncio.timeout(silence_s()):
                data = await reader.read(_READ_BYTES)
        except (OSError, TimeoutError) as error:
            raise ReplicaBroke("the replica stopped sending") from error
        try:
            connection.receive_data(data)
            status, body, is_done = _take(connection)
        except h11.RemoteProtocolError as error:
            failure = ReplicaBroke if has_head else ReplicaUnavailable
            raise failure("the replica's connection broke") from error
        if status is not None:
            has_head = True
            if status != 200:
                raise ReplicaUnavailable(f"the replica answered {status}")
        *lines, pending = (pending + body).split(b"\n")
        if len(pending) > _MAX_LINE_BYTES:
            raise ReplicaBroke("the replica sent an endless line")
        if lines:
            yield [_frame(line) for line in lines if line]
        if is_done:
            return


def _opening(connection: h11.Connection, secret: str, body: bytes) -> bytes:
    head = h11.Request(
        method="POST",
        target="/generate",
        headers=[
            ("host", "replica"),
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
            (SECRET_HEADER, secret),
        ],
    )
    parts = [connection.send(event) for event in (head, h11.Data(data=body), h11.EndOfMessage())]
    return b"".join(part for part in parts if part is not None)


def _take(connection: h11.Connection) -> tuple[int | None, bytes, bool]:
    """Everything the connection can tell now: a status, body bytes, and whether the body is complete."""
    status: int | None = None
    parts: list[bytes] = []
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            parts.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            return status, b"".join(parts), True
        elif event is h11.NEED_DATA:
            return status, b"".join(parts), False
        else:
            raise h11.RemoteProtocolError("connection closed early")


def _frame(line: bytes) -> Frame:
    try:
        return decode_frame(line)
    except (ValueError, TypeError, KeyError) as error:
        raise ReplicaBroke("the replica sent something that is no frame") from error
