"""The answer to a generation, whole or streamed: runs it, writes it, and settles it however it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass

import structlog
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from api import context
from api.dispatch.disconnect import ClientGone, until_gone
from api.dispatch.dispatcher import Dispatcher
from api.dispatch.generation import CLIENT_GONE, Generation, ending_of
from api.dispatch.tally import Counts
from api.errors import http_status, internal_error
from api.openai import sse
from api.openai.answers import Dialect
from api.openai.events import Echo, Event, events, opening_echoes
from api.openai.pace import Pace
from common.errors import PlatformError

log = structlog.get_logger()

_COMMENT_EVERY_S = 5.0
Batches = AsyncGenerator[list[Event], None]


@dataclass(frozen=True, slots=True)
class Form:
    """How the caller wants its answer."""

    is_stream: bool
    include_usage: bool
    n: int
    echoes: Sequence[Echo] = ()


class Reply(Response):
    """An ASGI answer that owns its generation until the account is closed."""

    def __init__(
        self,
        generation: Generation,
        dialect: Dialect,
        form: Form,
        dispatcher: Dispatcher,
        pace: Pace,
        comment_after_s: float,
        reader_silence_s: float,
    ) -> None:
        super().__init__()
        self._generation = generation
        self._dialect = dialect
        self._form = form
        self._dispatcher = dispatcher
        self._pace = pace
        self._comment_after_s = comment_after_s
        self._reader_silence_s = reader_silence_s
        self._is_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = context.of(scope)
        send = self._patient(send)
        work = (
            self._stream(request.headers, send)
            if self._form.is_stream
            else self._whole(request.headers, send)
        )
        try:
            await until_gone(receive, work)
        except ClientGone:
            request.status_override = 499
            await self._settle(None, client_gone=True)
        except PlatformError as error:
            await self._fail(error, send)
        except Exception:
            log.error("generation_crashed", exc_info=True)
            await self._fail(internal_error(request.request_id), send)
        finally:
            await self._settle(internal_error(request.request_id))  # does nothing when it was settled above

    def _patient(self, send: Send) -> Send:
        """`send`, which a reader that takes nothing for long does not block for ever: it counts as gone."""

        async def patient(message: Message) -> None:
            try:
                async with asyncio.timeout(self._reader_silence_s):
                    await send(message)
            except TimeoutError as error:
                raise ClientGone from error

        return patient

    async def _whole(self, headers: dict[str, str], send: Send) -> None:
        collected: list[Event] = opening_echoes(self._form.echoes, self._form.n)
        async with aclosing(self._batches()) as batches:
            async for batch in batches:
                collected += batch
        await self._settle(None)
        headers.update(self._timings())
        body = json.dumps(
            self._dialect.answer(collected, self._generation.counts),
            ensure_ascii=False,
            separators=(",", ":"),
        )
        self._is_begun = True
        await Response(body, media_type="application/json")({"type": "http"}, _no_receive, send)

    async def _stream(self, headers: dict[str, str], send: Send) -> None:
        async with aclosing(self._batches()) as batches:
            first = await self._first(batches, headers, send)
            await self._begin(headers, send)
            usage = self._usage
            opening = self._dialect.opening(usage)
            opening += [
                self._dialect.chunk(e, usage) for e in opening_echoes(self._form.echoes, self._form.n)
            ]
            chunks = opening + [self._dialect.chunk(e, usage) for e in first]
            await _body(send, b"".join(sse.event(chunk) for chunk in chunks))
            async for batch in batches:
                await _body(send, b"".join(sse.event(self._dialect.chunk(e, usage)) for e in batch))
        await self._settle(None)
        tail = sse.event(self._dialect.usage_chunk(usage())) if self._form.include_usage else b""
        await _body(send, tail + sse.DONE, is_last=True)

    async def _first(self, batches: Batches, headers: dict[str, str], send: Send) -> list[Event]:
        """The first tokens. Until they are there, the client hears after a while that we are at it."""
        waiting = asyncio.ensure_future(anext(batches, None))
        patience_s = self._comment_after_s
        try:
            while not waiting.done():
                await asyncio.wait({waiting}, timeout=patience_s)
                if not waiting.done():
                    await self._begin(headers, send)
                    await _body(send, sse.comment(self._progress()))
                    patience_s = _COMMENT_EVERY_S
            return waiting.result() or []
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    async def _batches(self) -> Batches:
        async with aclosing(self._generation.groups()) as groups:
            async for group in groups:
                if batch := events(group, self._form.n, self._form.echoes):
                    self._pace.feed(batch)
                    yield batch
        self._pace.end()

    async def _begin(self, headers: dict[str, str], send: Send) -> None:
        if self._is_begun:
            return
        self._is_begun = True
        headers.update(self._timings())
        raw = [(name.encode(), value.encode()) for name, value in sse.HEADERS.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})

    async def _fail(self, error: PlatformError, send: Send) -> None:
        """Before the headers an error has its real status; after them it is one frame."""
        await self._settle(error)
        if not self._is_begun:
            raise error
        if self._form.is_stream:
            with suppress(ClientGone):
                await _body(send, sse.error_tail(error), is_last=True)

    async def _settle(self, error: PlatformError | None, *, client_gone: bool = False) -> None:
        status = 200 if error is None or self._is_begun else http_status(error)
        ending = CLIENT_GONE if client_gone else ending_of(error, status)
        await self._dispatcher.settle(self._generation, ending)

    def _usage(self) -> Counts:
        return self._generation.counts

    def _progress(self) -> str:
        model = self._generation.account.model
        return f"working on {model}" if self._generation.is_placed else f"waking {model}"

    def _timings(self) -> dict[str, str]:
        """How long the request was held, and what its replica's cold start was made of when it was."""
        held_ms = self._generation.held_s * 1000
        timings = [f"hold;dur={held_ms:.1f}"]
        slot = self._generation.calls[0].slot
        if held_ms > 0 and slot is not None:
            timings += [f"{name};dur={s * 1000:.1f}" for name, s in slot.lease.phases_s]
        found = {"server-timing": ", ".join(timings)}
        if held_ms > 0:
            found["x-cold-start-ms"] = f"{held_ms:.0f}"
        return found


async def _body(send: Send, data: bytes, *, is_last: bool = False) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": not is_last})


async def _no_receive() -> Message:
    return {"type": "http.disconnect"}
