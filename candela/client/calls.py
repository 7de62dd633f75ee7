"""Every REST operation as a value: method, path, body, and how to read the answer. Pure; no I/O.

`Client` and `AsyncClient` only carry these out, so that nothing about the API is written twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from . import results
from .errors import ProtocolError, StreamFailed
from .sse import ServerEvent

T = TypeVar("T")
API = "/api/v1"
_JSON = {"content-type": "application/json"}
_REPEATABLE = frozenset({"GET", "DELETE"})


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request. `path` may be an absolute address; `is_signed` keeps the key away from it.

    `may_repeat`: doing it twice is the same as doing it once.
    """

    method: str
    path: str
    read: Callable[[bytes], T]
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    is_signed: bool = False
    may_repeat: bool = False


def list_models() -> Call[tuple[results.Model, ...]]:
    return _call("GET", "/models", _many(results.model_from))


def get_model(name: str) -> Call[results.Model]:
    return _call("GET", f"/models/{_segment(name)}", _one(results.model_from))


def delete_model(name: str) -> Call[None]:
    return _call("DELETE", f"/models/{_segment(name)}", _nothing)


def create_upload(
    model: str,
    files: Sequence[Mapping[str, Any]],
    config: Mapping[str, Any] | None,
    weight_headers: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Call[results.Upload]:
    body = {
        "model": model,
        "files": list(files),
        "config": config,
        "weight_headers": weight_headers,
        "options": options,
    }
    return _call("POST", "/uploads", _one(results.upload_from), body)


def get_upload(upload_id: str) -> Call[results.Upload]:
    return _call("GET", f"/uploads/{_segment(upload_id)}", _one(results.upload_from))


def complete_upload(upload_id: str) -> Call[results.Upload]:
    return _call(
        "POST", f"/uploads/{_segment(upload_id)}/complete", _one(results.upload_from), may_repeat=True
    )


def abort_upload(upload_id: str) -> Call[None]:
    return _call("DELETE", f"/uploads/{_segment(upload_id)}", _nothing)


def put_part(url: str, content: bytes, sha256: str) -> Call[None]:
    headers = {"content-type": "application/octet-stream", "x-candela-sha256": sha256}
    return Call("PUT", url, _nothing, headers=headers, content=content, is_signed=True, may_repeat=True)


def list_jobs(model: str | None = None, state: str | None = None) -> Call[tuple[results.Job, ...]]:
    query = {key: value for key, value in (("model", model), ("state", state)) if value is not None}
    return _call("GET", "/jobs", _many(results.job_from), query=query)


def get_job(job_id: str) -> Call[results.Job]:
    return _call("GET", f"/jobs/{_segment(job_id)}", _one(results.job_from))


def cancel_job(job_id: str) -> Call[results.Job]:
    return _call("POST", f"/jobs/{_segment(job_id)}/cancel", _one(results.job_from), may_repeat=True)


def job_events(job_id: str, after: int) -> Call[bytes]:
    """The journal from behind event `after` (0: from its start), as a stream of server-sent events."""
    headers = {"accept": "text/event-stream", "last-event-id": str(after)}
    return Call("GET", f"{API}/jobs/{_segment(job_id)}/events", bytes, headers=headers)


def list_deployments() -> Call[tuple[results.Deployment, ...]]:
    return _call("GET", "/deployments", _many(results.deployment_from))


def get_deployment(name: str) -> Call[results.Deployment]:
    return _call("GET", f"/deployments/{_segment(name)}", _one(results.deployment_from))


def create_deployment(name: str, model: str, policy: results.ScalingPolicy) -> Call[results.Deployment]:
    body = {"name": name, "model": model, "policy": asdict(policy)}
    return _call("POST", "/deployments", _one(results.deployment_from), body)


def update_deployment(name: str, policy: results.ScalingPolicy) -> Call[results.Deployment]:
    body = {"policy": asdict(policy)}
    return _call("PATCH", f"/deployments/{_segment(name)}", _one(results.deployment_from), body)


def delete_deployment(name: str) -> Call[None]:
    return _call("DELETE", f"/deployments/{_segment(name)}", _nothing)


def list_keys() -> Call[tuple[results.ApiKey, ...]]:
    return _call("GET", "/keys", _many(results.key_from))


def create_key(name: str, scopes: Sequence[str]) -> Call[results.NewApiKey]:
    return _call("POST", "/keys", _one(results.new_key_from), {"name": name, "scopes": list(scopes)})


def revoke_key(key_id: str) -> Call[None]:
    return _call("DELETE", f"/keys/{_segment(key_id)}", _nothing)


def get_usage(start: date | None, end: date | None, verify: bool) -> Call[results.Usage]:
    chosen = {"start": start, "end": end, "verify": "true" if verify else None}
    query = {key: str(value) for key, value in chosen.items() if value is not None}
    return _call("GET", "/usage", _one(results.usage_from), query=query)


def chat(
    model: str, messages: Sequence[Mapping[str, str]], options: Mapping[str, Any]
) -> Call[results.ChatAnswer]:
    return _openai_chat(
        {"model": model, "messages": list(messages), **options}, _one(results.chat_answer_from)
    )


def stream_chat(model: str, messages: Sequence[Mapping[str, str]], options: Mapping[str, Any]) -> Call[bytes]:
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    return _openai_chat({"model": model, "messages": list(messages), **options, **stream}, bytes)


def read_chat_event(event: ServerEvent) -> results.ChatChunk | None:
    """A chunk, or None at the end of the stream.

    Raises:
        StreamFailed: the platform broke the stream off with an error frame.
    """
    if event.data == "[DONE]":
        return None
    raw = json.loads(event.data)
    if "error" in raw:
        raise StreamFailed(str(raw["error"].get("code")), str(raw["error"].get("message")))
    return results.chat_chunk_from(raw)


def read_job_event(event: ServerEvent) -> results.JobEvent:
    return results.job_event_from(json.loads(event.data))


def _call(
    method: str,
    path: str,
    read: Callable[[bytes], T],
    body: Mapping[str, Any] | None = None,
    *,
    query: Mapping[str, str] | None = None,
    may_repeat: bool = False,
) -> Call[T]:
    return Call(
        method,
        API + path,
        read,
        query=query or {},
        headers={} if body is None else _JSON,
        content=None if body is None else json.dumps(body).encode(),
        may_repeat=may_repeat or method in _REPEATABLE,
    )


def _openai_chat(body: Mapping[str, Any], read: Callable[[bytes], T]) -> Call[T]:
    return Call("POST", "/v1/chat/completions", read, headers=_JSON, content=json.dumps(body).encode())


def _one(read: Callable[[results.Json], T]) -> Callable[[bytes], T]:
    def read_body(content: bytes) -> T:
        try:
            return read(json.loads(content))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise ProtocolError(
                f"the platform's answer is not understood ({error!r}); versions may differ"
            ) from error

    return read_body


def _many(read: Callable[[results.Json], T]) -> Callable[[bytes], tuple[T, ...]]:
    def read_list(raw: results.Json) -> tuple[T, ...]:
        return tuple(read(item) for item in raw["data"])

    return _one(read_list)


def _nothing(content: bytes) -> None:
    return None


def _segment(text: str) -> str:
    return quote(text, safe="")
