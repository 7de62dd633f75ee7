"""A replica without a model, inside the test's own event loop: speaks `common.wire` over a real Unix socket.

A `Script` says what it answers to each request; the default spells `t0 t1 ...` up to the allowed length.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import h11

from common.wire import (
    SECRET_HEADER,
    Delta,
    Ended,
    Finished,
    FinishReason,
    Frame,
    GenerateRequest,
    ReplicaState,
    Started,
    TokenLogprob,
    encode_frame,
)
from storage.lease_keys import ReplicaLease

SECRET = "replica-secret"


class Pause:
    """A step of a script that waits until the test lets it go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()


class Die:
    """A step of a script: the connection is cut, as by a killed process."""


Step = Frame | Pause | Die
Script = Callable[[GenerateRequest], Iterable[Step]]


def spell(request: GenerateRequest, *, cached: int = 0) -> Iterable[Step]:
    """Every sequence says `t0 t1 ...`, token by token, until the length is used up."""
    yield Started(len(request.prompt_ids), cached)
    for index in range(request.n):
        for number in range(request.max_tokens):
            text = f"t{number} "
            scores = (
                ()
                if request.logprobs is None
                else (TokenLogprob(number, text, -0.5, ((number, text, -0.5),)),)
            )
            yield Delta(index, text, (number,), number + 1, scores)
        yield Finished(index, FinishReason.LENGTH, request.max_tokens)
    yield Ended(len(request.prompt_ids), request.n * request.max_tokens, cached)


def say(*texts: str, reason: FinishReason = FinishReason.STOP) -> Script:
    """A script whose every sequence says these texts, one token each, then stops."""

    def script(request: GenerateRequest) -> Iterable[Step]:
        yield Started(len(request.prompt_ids))
        for index in range(request.n):
            for number, text in enumerate(texts):
                yield Delta(index, text, (number,), number + 1)
            yield Finished(index, reason, len(texts))
        yield Ended(len(request.prompt_ids), request.n * len(texts))

    return script


@dataclass
class WireReplica:
    """`requests` are those it got; `aborted` those whose connection the gateway closed early."""

    replica_id: str
    socket_path: Path
    script: Script
    requests: list[GenerateRequest] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    status: int = 200

    def lease(self, deployment_id: str, tenant_id: str, **changes: object) -> ReplicaLease:
        """The lease a scheduler would write for it."""
        facts: dict[str, object] = {
            "replica_id": self.replica_id,
            "deployment_id": deployment_id,
            "revision_id": "rev_1",
            "tenant_id": tenant_id,
            "socket_path": str(self.socket_path),
            "secret": SECRET,
            "state": ReplicaState.READY,
            "max_sequences": 32,
            "phases_s": (("start", 0.1), ("map", 0.02)),
        }
        return ReplicaLease(**{**facts, **changes})  # type: ignore[arg-type]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER)
        try:
            headers, body = await _receive(connection, reader)
            if headers.get(SECRET_HEADER.encode()) != SECRET.encode() or self.status != 200:
                status = 403 if self.status == 200 else self.status
                writer.write(
                    connection.send(h11.Response(status_code=status, headers=[("content-length", "0")]))
                )
                return
            await self._answer(connection, reader, writer, GenerateRequest.from_json(body))
        finally:
            writer.close()

    async def _answer(
        self,
        connection: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        request: GenerateRequest,
    ) -> None:
        self.requests.append(request)
        writer.write(
            connection.send(h11.Response(status_code=200, headers=[("transfer-encoding", "chunked")]))
        )
        gone = asyncio.ensure_future(reader.read(1))
        try:
            for step in self.script(request):
                if isinstance(step, Die):
                    writer.transport.abort()
                    return
                if isinstance(step, Pause):
                    step.reached.set()
                    waiting = asyncio.ensure_future(step.go_on.wait())
                    await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
                    waiting.cancel()
                else:
                    writer.write(connection.send(h11.Data(data=encode_frame(step))))
                    await writer.drain()
                if gone.done():
                    self.aborted.append(request.request_id)
                    return
            writer.write(connection.send(h11.EndOfMessage()))
            await writer.drain()
        finally:
            gone.cancel()


async def _receive(
    connection: h11.Connection, reader: asyncio.StreamReader
) -> tuple[dict[bytes, bytes], bytes]:
    headers: dict[bytes, bytes] = {}
    body = b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(65536))
        elif isinstance(event, h11.Request):
            headers = dict(event.headers)
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            return headers, body
        else:
            raise ConnectionError("the caller went away before its request was complete")


@asynccontextmanager
async def wire_replica(
    folder: Path, script: Script = spell, replica_id: str = "rep_1"
) -> AsyncIterator[WireReplica]:
    """Listen on a socket in `folder` for the length of a block."""
    replica = WireReplica(replica_id, folder / f"{replica_id}.sock", script)
    server = await asyncio.start_unix_server(replica.serve, replica.socket_path)
    try:
        yield replica
    finally:
        server.close()
