"""A platform that answers the client's REST calls from memory, behind httpx's own transport seam."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

URL = "http://platform.test"
KEY = "ck_test"
PART_BYTES = 1000
Handler = Callable[[httpx.Request], httpx.Response | None]


@dataclass
class FakePlatform:
    """Keeps parts by (file, number). `before` may answer or raise first; None lets a call through."""

    before: Handler = field(default=lambda request: None)
    parts: dict[tuple[str, int], bytes] = field(default_factory=dict)
    upload: dict[str, Any] = field(default_factory=dict)
    requests: list[httpx.Request] = field(default_factory=list)
    portion: int = 1000

    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._handle)

    def received(self, name: str) -> bytes:
        file = next(f for f in self.upload["files"] if f["name"] == name)
        return b"".join(content for (owner, _), content in sorted(self.parts.items()) if owner == file["id"])

    def count(self, method: str, path: str) -> int:
        return sum(r.method == method and r.url.path == path for r in self.requests)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.before(request)
        return answer if answer is not None else self._answer(request)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if request.method == "POST" and path == "/api/v1/uploads":
            self.upload = json.loads(request.content)
            for number, file in enumerate(self.upload["files"]):
                file["id"] = f"f{number}"
            return httpx.Response(201, json=self._upload())
        if request.method == "PUT" and path.startswith("/parts/"):
            return self._part(request)
        if path == "/api/v1/uploads/upl_1":
            return httpx.Response(200, json=self._upload())
        if path == "/api/v1/uploads/upl_1/complete":
            return httpx.Response(200, json={**self._upload(), "revision_id": "rev_1", "job_id": "job_1"})
        return error(404, "not_found", f"no {path}")

    def _part(self, request: httpx.Request) -> httpx.Response:
        match = re.fullmatch(r"/parts/(\w+)/(\d+)", request.url.path)
        assert match is not None, "the client sends parts where it was told to"
        if hashlib.sha256(request.content).hexdigest() != request.headers["x-candela-sha256"]:
            return error(400, "checksum_mismatch", "the part differs")
        self.parts[match[1], int(match[2])] = request.content
        return httpx.Response(200, json={})

    def _upload(self) -> dict[str, Any]:
        files = [self._file(f) for f in self.upload["files"]]
        base = {"id": "upl_1", "state": "uploading", "model": self.upload["model"], "files": files}
        return {**base, "revision_id": None, "job_id": None, "failure": None}

    def _file(self, file: dict[str, Any]) -> dict[str, Any]:
        size = file["size_bytes"]
        plan = [
            {
                "number": n,
                "offset": at,
                "size_bytes": min(PART_BYTES, size - at),
                "url": f"{URL}/parts/{file['id']}/{n}?s=x",
            }
            for n, at in enumerate(range(0, size, PART_BYTES), start=1)
        ]
        have = [p for p in plan if (file["id"], p["number"]) in self.parts]
        missing = [p for p in plan if p not in have]
        return {**file, "needs_bytes": True, "received_parts": have, "missing_parts": missing[: self.portion]}


def error(
    status: int, code: str, message: str, problems: list[dict[str, str]] | None = None
) -> httpx.Response:
    body: dict[str, Any] = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    if problems is not None:
        body["problems"] = problems
    return httpx.Response(status, json={"error": body})


def event_stream(*events: tuple[int, str, dict[str, Any]]) -> httpx.Response:
    """Job events as the platform streams them."""
    text = "".join(
        f"id: {seq}\nevent: {kind}\ndata: "
        + json.dumps({"seq": seq, "attempt": 1, "kind": kind, "body": body, "at": 1.0})
        + "\n\n"
        for seq, kind, body in events
    )
    return httpx.Response(200, text=": hello\n\n" + text, headers={"content-type": "text/event-stream"})
