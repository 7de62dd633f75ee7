"""Server-sent events as OpenAI sends them: `data: {json}`, comments, and `[DONE]`. Pure."""

from __future__ import annotations

import json
from typing import Any

from api.errors import error_body
from common.errors import PlatformError

DONE = b"data: [DONE]\n\n"
HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}


def event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


def named_event(name: str, body: dict[str, Any], sequence: int) -> bytes:
    """An event with a name and an id, for readers that resume with `Last-Event-ID`."""
    return f"id: {sequence}\nevent: {name}\n".encode() + event(body)


def comment(text: str) -> bytes:
    """A line that clients skip; it keeps proxies and people from giving up."""
    return f": {text}\n\n".encode()


def error_tail(error: PlatformError) -> bytes:
    """How a stream that already began ends badly: one error frame, then `[DONE]`."""
    return event(error_body(error)) + DONE
