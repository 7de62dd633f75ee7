"""The asynchronous client: the same calls and flows as `Client`, awaited. Files are read in threads."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from . import calls, results
from .config import load_config
from .errors import ClientError, ConnectionFailed, ServerError
from .http import CHAT_TIMEOUT, PARALLEL_PARTS, TIMEOUT, connection_failed, read_response, request_arguments
from .progress import Meter, OnProgress, Phase, ignore_progress
from .retry import RetryPolicy
from .source import read_part, read_source
from .sse import ServerEvent, SseDecoder
from .upload_flow import Ask, Flow, PartToSend, Send, resume_upload, start_upload
from .watch import JobWatch, require_success

T = TypeVar("T")
Message = Mapping[str, str]


class AsyncClient:
    """A platform's door for asyncio programs; arguments and errors as `Client` has them."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        data_dir: Path | None = None,
        retry: RetryPolicy | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.config = load_config(url, api_key, data_dir=data_dir)
        self._http = httpx.AsyncClient(timeout=TIMEOUT, transport=transport, trust_env=False)
        self._retry = retry or RetryPolicy()
        self.models = AsyncModels(self)
        self.uploads = AsyncUploads(self)
        self.jobs = AsyncJobs(self)
        self.deployments = AsyncDeployments(self)
        self.keys = AsyncKeys(self)
        self.usage = AsyncUsageReports(self)
        self.chat = AsyncChat(self)

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def send(self, call: calls.Call[T], timeout: httpx.Timeout = TIMEOUT) -> T:
        """Carry out one call, repeated where that is safe; errors as `Client.send`."""
        attempt = 1
        while True:
            try:
                return await self._send_once(call, timeout)
            except ClientError as error:
                delay_s = self._retry.delay_s(call.may_repeat, attempt, error)
                if delay_s is None:
                    raise
            await asyncio.sleep(delay_s)
            attempt += 1

    @asynccontextmanager
    async def stream(
        self, call: calls.Call[bytes], timeout: httpx.Timeout = TIMEOUT
    ) -> AsyncIterator[AsyncIterator[ServerEvent]]:
        """Server-sent events of one answer; leaving the block closes the connection."""
        try:
            async with self._http.stream(**request_arguments(self.config, call), timeout=timeout) as response:
                if response.status_code >= 400:
                    await response.aread()
                    read_response(call, response)
                yield _events(response)
        except httpx.HTTPError as error:
            raise connection_failed(self.config, error) from error

    async def _send_once(self, call: calls.Call[T], timeout: httpx.Timeout) -> T:
        try:
            response = await self._http.request(**request_arguments(self.config, call), timeout=timeout)
        except httpx.HTTPError as error:
            raise connection_failed(self.config, error) from error
        return read_response(call, response)


async def _events(response: httpx.Response) -> AsyncIterator[ServerEvent]:
    decoder = SseDecoder()
    async for line in response.aiter_lines():
        event = decoder.feed(line)
        if event is not None:
            yield event


class _Resource:
    def __init__(self, client: AsyncClient) -> None:
        self._client = client


class AsyncModels(_Resource):
    async def list(self) -> tuple[results.Model, ...]:
        return await self._client.send(calls.list_models())

    async def get(self, name: str) -> results.Model:
        return await self._client.send(calls.get_model(name))

    async def delete(self, name: str) -> None:
        await self._client.send(calls.delete_model(name))


class AsyncUploads(_Resource):
    async def create(
        self,
        path: Path,
        model: str,
        *,
        options: Mapping[str, Any] | None = None,
        on_progress: OnProgress = ignore_progress,
    ) -> results.Upload:
        """Hash and send a checkpoint; see `Uploads.create`. `on_progress` is called from a thread while
        hashing and from the event loop while sending."""
        source = await asyncio.to_thread(read_source, path, on_progress)
        return await self._run(start_upload(source, model, options or {}), on_progress)

    async def resume(
        self, path: Path, upload_id: str, *, on_progress: OnProgress = ignore_progress
    ) -> results.Upload:
        """Send what is missing of an upload that broke off."""
        source = await asyncio.to_thread(read_source, path, on_progress)
        return await self._run(resume_upload(source, upload_id), on_progress)

    async def get(self, upload_id: str) -> results.Upload:
        return await self._client.send(calls.get_upload(upload_id))

    async def abort(self, upload_id: str) -> None:
        await self._client.send(calls.abort_upload(upload_id))

    async def _run(self, flow: Flow, on_progress: OnProgress) -> results.Upload:
        answer: Any = None
        while True:
            try:
                step = flow.send(answer)
            except StopIteration as end:
                upload: results.Upload = end.value
                return upload
            if isinstance(step, Ask):
                answer = await self._client.send(step.call)
            else:
                answer = await self._send_parts(step, on_progress)

    async def _send_parts(self, step: Send, on_progress: OnProgress) -> tuple[ClientError, ...]:
        meter = Meter(Phase.SENDING, step.done_bytes, step.total_bytes, on_progress)
        places = asyncio.Semaphore(PARALLEL_PARTS)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._send_part(places, meter, part)) for part in step.parts]
        outcomes = (task.result() for task in tasks)
        return tuple(outcome for outcome in outcomes if outcome is not None)

    async def _send_part(
        self, places: asyncio.Semaphore, meter: Meter, part: PartToSend
    ) -> ClientError | None:
        async with places:
            content = await asyncio.to_thread(read_part, part.path, part.offset, part.size)
            try:
                await self._client.send(
                    calls.put_part(part.url, content, hashlib.sha256(content).hexdigest())
                )
            except ClientError as error:
                return error
        meter.add(part.size)
        return None


class AsyncJobs(_Resource):
    async def list(self, *, model: str | None = None, state: str | None = None) -> tuple[results.Job, ...]:
        return await self._client.send(calls.list_jobs(model, state))

    async def get(self, job_id: str) -> results.Job:
        return await self._client.send(calls.get_job(job_id))

    async def cancel(self, job_id: str) -> results.Job:
        return await self._client.send(calls.cancel_job(job_id))

    async def watch(self, job_id: str) -> AsyncIterator[results.JobEvent]:
        """Every event of the job from its first to its last, over as many connections as it takes."""
        watch = JobWatch(job_id)
        while not watch.is_over:
            broken: ClientError | None = None
            try:
                async with aclosing(self._new_events(watch)) as events:
                    async for event in events:
                        yield event
            except (ConnectionFailed, ServerError) as error:
                broken = error
            if not watch.is_over:
                await asyncio.sleep(watch.wait_s(broken))

    async def wait(self, job_id: str) -> results.Job:
        """Raises: `JobFailed` when the job ends in any other way than well."""
        async for _ in self.watch(job_id):
            pass
        return require_success(await self.get(job_id))

    async def _new_events(self, watch: JobWatch) -> AsyncGenerator[results.JobEvent, None]:
        async with self._client.stream(calls.job_events(watch.job_id, watch.last_seq)) as events:
            async for raw in events:
                event = calls.read_job_event(raw)
                if watch.accept(event):
                    yield event


class AsyncDeployments(_Resource):
    async def list(self) -> tuple[results.Deployment, ...]:
        return await self._client.send(calls.list_deployments())

    async def get(self, name: str) -> results.Deployment:
        return await self._client.send(calls.get_deployment(name))

    async def create(self, name: str, model: str, policy: results.ScalingPolicy) -> results.Deployment:
        return await self._client.send(calls.create_deployment(name, model, policy))

    async def update(self, name: str, policy: results.ScalingPolicy) -> results.Deployment:
        return await self._client.send(calls.update_deployment(name, policy))

    async def delete(self, name: str) -> None:
        await self._client.send(calls.delete_deployment(name))


class AsyncKeys(_Resource):
    async def list(self) -> tuple[results.ApiKey, ...]:
        return await self._client.send(calls.list_keys())

    async def create(self, name: str, scopes: Sequence[str] = ()) -> results.NewApiKey:
        return await self._client.send(calls.create_key(name, scopes))

    async def revoke(self, key_id: str) -> None:
        await self._client.send(calls.revoke_key(key_id))


class AsyncUsageReports(_Resource):
    async def get(
        self, start: date | None = None, end: date | None = None, *, verify: bool = False
    ) -> results.Usage:
        """Usage within [start, end), days in UTC; see `UsageReports.get`."""
        return await self._client.send(calls.get_usage(start, end, verify))


class AsyncChat(_Resource):
    """Chat completions over plain HTTP; the official `openai` client works just as well at `<url>/v1`."""

    async def create(self, model: str, messages: Sequence[Message], **options: Any) -> results.ChatAnswer:
        return await self._client.send(calls.chat(model, messages, options), CHAT_TIMEOUT)

    async def stream(
        self, model: str, messages: Sequence[Message], **options: Any
    ) -> AsyncIterator[results.ChatChunk]:
        """Chunks as they come; closing the iterator stops the generation."""
        async with self._client.stream(calls.stream_chat(model, messages, options), CHAT_TIMEOUT) as events:
            async for event in events:
                chunk = calls.read_chat_event(event)
                if chunk is None:
                    return
                yield chunk
