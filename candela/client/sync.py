"""The synchronous client: carries out calls, sends parts from a thread pool, follows events.

>>> with Client() as candela:
...     upload = candela.uploads.create(Path("SmolLM2-135M"), "smollm2")
...     candela.jobs.wait(upload.job_id)
...     candela.deployments.create("smollm2", "smollm2", ScalingPolicy(0, 2, 30.0))
...     print(candela.chat.create("smollm2", [{"role": "user", "content": "Hello!"}]).text)
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date
from functools import partial
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


class Client:
    """A platform's door. Thread-safe; close it or use it as a context manager.

    Args:
        url, api_key: default to CANDELA_URL and CANDELA_API_KEY, then to `<data_dir>/client.json`.
        transport: where requests go instead of the network (httpx's seam; tests use it).

    Raises:
        NotConfigured: no address or no key is known.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        data_dir: Path | None = None,
        retry: RetryPolicy | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.config = load_config(url, api_key, data_dir=data_dir)
        self._http = httpx.Client(timeout=TIMEOUT, transport=transport, trust_env=False)
        self._retry = retry or RetryPolicy()
        self.models = Models(self)
        self.uploads = Uploads(self)
        self.jobs = Jobs(self)
        self.deployments = Deployments(self)
        self.keys = Keys(self)
        self.usage = UsageReports(self)
        self.chat = Chat(self)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def send(self, call: calls.Call[T], timeout: httpx.Timeout = TIMEOUT) -> T:
        """Carry out one call, repeated where that is safe.

        Raises:
            ApiError: the platform answered with an error.
            ConnectionFailed: no answer came.
        """
        attempt = 1
        while True:
            try:
                return self._send_once(call, timeout)
            except ClientError as error:
                delay_s = self._retry.delay_s(call.may_repeat, attempt, error)
                if delay_s is None:
                    raise
            time.sleep(delay_s)
            attempt += 1

    @contextmanager
    def stream(
        self, call: calls.Call[bytes], timeout: httpx.Timeout = TIMEOUT
    ) -> Iterator[Iterator[ServerEvent]]:
        """Server-sent events of one answer; leaving the block closes the connection."""
        try:
            with self._http.stream(**request_arguments(self.config, call), timeout=timeout) as response:
                if response.status_code >= 400:
                    response.read()
                    read_response(call, response)
                yield _events(response)
        except httpx.HTTPError as error:
            raise connection_failed(self.config, error) from error

    def _send_once(self, call: calls.Call[T], timeout: httpx.Timeout) -> T:
        try:
            response = self._http.request(**request_arguments(self.config, call), timeout=timeout)
        except httpx.HTTPError as error:
            raise connection_failed(self.config, error) from error
        return read_response(call, response)


def _events(response: httpx.Response) -> Iterator[ServerEvent]:
    decoder = SseDecoder()
    for line in response.iter_lines():
        event = decoder.feed(line)
        if event is not None:
            yield event


class _Resource:
    def __init__(self, client: Client) -> None:
        self._client = client


class Models(_Resource):
    def list(self) -> tuple[results.Model, ...]:
        return self._client.send(calls.list_models())

    def get(self, name: str) -> results.Model:
        return self._client.send(calls.get_model(name))

    def delete(self, name: str) -> None:
        self._client.send(calls.delete_model(name))


class Uploads(_Resource):
    def create(
        self,
        path: Path,
        model: str,
        *,
        options: Mapping[str, Any] | None = None,
        on_progress: OnProgress = ignore_progress,
    ) -> results.Upload:
        """Hash and send a checkpoint (a directory or a GGUF file); gives back once its compile job is queued.

        Raises:
            CheckpointUnusable, UploadRefused: the files cannot become a model; nothing was sent.
            UploadFailed: parts could not be sent; carries the id to resume with.
        """
        source = read_source(path, on_progress)
        return self._run(start_upload(source, model, options or {}), on_progress)

    def resume(
        self, path: Path, upload_id: str, *, on_progress: OnProgress = ignore_progress
    ) -> results.Upload:
        """Send what is missing of an upload that broke off."""
        return self._run(resume_upload(read_source(path, on_progress), upload_id), on_progress)

    def get(self, upload_id: str) -> results.Upload:
        return self._client.send(calls.get_upload(upload_id))

    def abort(self, upload_id: str) -> None:
        self._client.send(calls.abort_upload(upload_id))

    def _run(self, flow: Flow, on_progress: OnProgress) -> results.Upload:
        answer: Any = None
        while True:
            try:
                step = flow.send(answer)
            except StopIteration as end:
                upload: results.Upload = end.value
                return upload
            answer = (
                self._client.send(step.call) if isinstance(step, Ask) else self._send_parts(step, on_progress)
            )

    def _send_parts(self, step: Send, on_progress: OnProgress) -> tuple[ClientError, ...]:
        meter = Meter(Phase.SENDING, step.done_bytes, step.total_bytes, on_progress)
        pool = ThreadPoolExecutor(PARALLEL_PARTS, thread_name_prefix="upload")
        try:
            outcomes = tuple(pool.map(partial(self._send_part, meter), step.parts))
        finally:
            pool.shutdown(cancel_futures=True)
        return tuple(outcome for outcome in outcomes if outcome is not None)

    def _send_part(self, meter: Meter, part: PartToSend) -> ClientError | None:
        content = read_part(part.path, part.offset, part.size)
        try:
            self._client.send(calls.put_part(part.url, content, hashlib.sha256(content).hexdigest()))
        except ClientError as error:
            return error
        meter.add(part.size)
        return None


class Jobs(_Resource):
    def list(self, *, model: str | None = None, state: str | None = None) -> tuple[results.Job, ...]:
        return self._client.send(calls.list_jobs(model, state))

    def get(self, job_id: str) -> results.Job:
        return self._client.send(calls.get_job(job_id))

    def cancel(self, job_id: str) -> results.Job:
        return self._client.send(calls.cancel_job(job_id))

    def watch(self, job_id: str) -> Iterator[results.JobEvent]:
        """Every event of the job from its first to its last, over as many connections as it takes."""
        watch = JobWatch(job_id)
        while not watch.is_over:
            broken: ClientError | None = None
            try:
                yield from self._new_events(watch)
            except (ConnectionFailed, ServerError) as error:
                broken = error
            if not watch.is_over:
                time.sleep(watch.wait_s(broken))

    def wait(self, job_id: str) -> results.Job:
        """Raises: `JobFailed` when the job ends in any other way than well."""
        for _ in self.watch(job_id):
            pass
        return require_success(self.get(job_id))

    def _new_events(self, watch: JobWatch) -> Iterator[results.JobEvent]:
        with self._client.stream(calls.job_events(watch.job_id, watch.last_seq)) as events:
            for raw in events:
                event = calls.read_job_event(raw)
                if watch.accept(event):
                    yield event


class Deployments(_Resource):
    def list(self) -> tuple[results.Deployment, ...]:
        return self._client.send(calls.list_deployments())

    def get(self, name: str) -> results.Deployment:
        return self._client.send(calls.get_deployment(name))

    def create(self, name: str, model: str, policy: results.ScalingPolicy) -> results.Deployment:
        return self._client.send(calls.create_deployment(name, model, policy))

    def update(self, name: str, policy: results.ScalingPolicy) -> results.Deployment:
        return self._client.send(calls.update_deployment(name, policy))

    def delete(self, name: str) -> None:
        self._client.send(calls.delete_deployment(name))


class Keys(_Resource):
    def list(self) -> tuple[results.ApiKey, ...]:
        return self._client.send(calls.list_keys())

    def create(self, name: str, scopes: Sequence[str] = ()) -> results.NewApiKey:
        return self._client.send(calls.create_key(name, scopes))

    def revoke(self, key_id: str) -> None:
        self._client.send(calls.revoke_key(key_id))


class UsageReports(_Resource):
    def get(
        self, start: date | None = None, end: date | None = None, *, verify: bool = False
    ) -> results.Usage:
        """Usage within [start, end), UTC days; by default the last 30 days. `verify` recomputes the chain."""
        return self._client.send(calls.get_usage(start, end, verify))


class Chat(_Resource):
    """Chat completions over plain HTTP; the official `openai` client works just as well at `<url>/v1`."""

    def create(self, model: str, messages: Sequence[Message], **options: Any) -> results.ChatAnswer:
        return self._client.send(calls.chat(model, messages, options), CHAT_TIMEOUT)

    def stream(self, model: str, messages: Sequence[Message], **options: Any) -> Iterator[results.ChatChunk]:
        """Chunks as they come; closing the iterator stops the generation."""
        with self._client.stream(calls.stream_chat(model, messages, options), CHAT_TIMEOUT) as events:
            for event in events:
                chunk = calls.read_chat_event(event)
                if chunk is None:
                    return
                yield chunk
