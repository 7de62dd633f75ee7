"""A replica without a model: speaks `common.wire` over a Unix socket, as `batching.replica.main` does.

`fake.json` in the artifact directory sets its `Behaviour`. It answers every prompt with `t0 t1 ...`.
Run it as a program with `python -P -S`: its neighbours must shadow no modules, and it starts fast.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socketserver
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from common.wire import (
    SECRET_HEADER,
    Delta,
    Ended,
    Failed,
    Finished,
    FinishReason,
    Frame,
    GenerateRequest,
    ReplicaState,
    ReplicaStats,
    RequestCounts,
    Started,
    encode_frame,
)


@dataclass(frozen=True)
class Behaviour:
    """What goes wrong, and how fast it is. `stats_delay_s` makes polls slow."""

    ready_after_s: float = 0.0
    exit_before_ready: int | None = None
    never_ready: bool = False
    ignores_sigterm: bool = False
    token_s: float = 0.005
    stats_delay_s: float = 0.0
    hoard_bytes: int = 0


class Replica:
    """Counts and state, shared by the request threads."""

    def __init__(self, arguments: argparse.Namespace, behaviour: Behaviour) -> None:
        self.arguments = arguments
        self.behaviour = behaviour
        self.secret = os.environ["CANDELA_REPLICA_SECRET"]
        self.lock = threading.Lock()
        self.state = ReplicaState.READY
        self.open: dict[str, RequestCounts] = {}
        self.ended: dict[str, RequestCounts] = {}
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.steps = 0
        self.last_end = time.monotonic()

    def stats(self) -> ReplicaStats:
        with self.lock:
            return ReplicaStats(
                replica_id=self.arguments.replica_id,
                state=self.state,
                running=len(self.open),
                waiting=0,
                max_sequences=self.arguments.max_sequences,
                kv_blocks_total=self.arguments.kv_blocks,
                kv_blocks_used=len(self.open),
                idle_s=0.0 if self.open else time.monotonic() - self.last_end,
                steps=self.steps,
                prompt_tokens=self.prompt_tokens,
                generation_tokens=self.generation_tokens,
                open=tuple(self.open.values()),
                ended=tuple(self.ended.values()),
                phases_s=(("map", 0.01), ("warmup", 0.02)),
            )

    def begin(self, request: GenerateRequest) -> None:
        counts = RequestCounts(request.request_id, request.tenant_id, len(request.prompt_ids), 0)
        with self.lock:
            self.open[request.request_id] = counts
            self.prompt_tokens += counts.prompt_tokens

    def count(self, request_id: str, tokens: int) -> None:
        with self.lock:
            self.open[request_id] = replace(self.open[request_id], completion_tokens=tokens)
            self.generation_tokens += 1
            self.steps += 1

    def end(self, request_id: str) -> RequestCounts:
        with self.lock:
            counts = self.open.pop(request_id)
            self.ended[request_id] = counts
            self.last_end = time.monotonic()
            return counts

    def forget(self, request_ids: Sequence[str]) -> None:
        with self.lock:
            for request_id in request_ids:
                self.ended.pop(request_id, None)

    def drain(self) -> None:
        with self.lock:
            self.state = ReplicaState.DRAINING


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    replica: Replica

    def do_GET(self) -> None:
        if self._is_refused():
            return
        time.sleep(self.replica.behaviour.stats_delay_s)
        self._answer(200, self.replica.stats().to_json().encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        if self._is_refused():
            return
        if self.path == "/generate":
            self._generate(GenerateRequest.from_json(body))
            return
        if self.path == "/stats/ack":
            self.replica.forget(json.loads(body)["request_ids"])
        if self.path == "/drain":
            self.replica.drain()
        self._answer(200, b"{}")

    def _generate(self, request: GenerateRequest) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/x-ndjson")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        if self.replica.state is not ReplicaState.READY:
            self._frame(Failed("draining", "this replica takes no more requests", retryable=True))
            self.wfile.write(b"0\r\n\r\n")
            return
        self.replica.begin(request)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._frame(Started(prompt_tokens=len(request.prompt_ids)))
            for number in range(request.max_tokens):
                time.sleep(self.replica.behaviour.token_s)
                self.replica.count(request.request_id, number + 1)
                self._frame(Delta(0, f"t{number} ", (number,), number + 1))
            self._frame(Finished(0, FinishReason.LENGTH, request.max_tokens))
        counts = self.replica.end(request.request_id)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._frame(Ended(counts.prompt_tokens, counts.completion_tokens))
            self.wfile.write(b"0\r\n\r\n")

    def _frame(self, frame: Frame) -> None:
        line = encode_frame(frame)
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")

    def _is_refused(self) -> bool:
        if self.headers.get(SECRET_HEADER) == self.replica.secret:
            return False
        self._answer(403, b"{}")
        return True

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: Any) -> None:
        return None


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128


def main() -> None:
    arguments = _arguments()
    settings = Path(arguments.artifact) / "fake.json"
    behaviour = Behaviour(**json.loads(settings.read_text())) if settings.exists() else Behaviour()
    time.sleep(behaviour.ready_after_s)
    if behaviour.exit_before_ready is not None:
        print("fake replica: told to fail", file=sys.stderr)
        sys.exit(behaviour.exit_before_ready)
    hoard = bytearray(os.urandom(1 << 20) * (behaviour.hoard_bytes >> 20))
    Handler.replica = Replica(arguments, behaviour)
    with Server(arguments.socket, Handler) as server:
        signal.signal(signal.SIGTERM, lambda *_: _drain(server))
        if not behaviour.never_ready:
            with open(arguments.ready_fd, "w") as ready:
                ready.write(Handler.replica.stats().to_json() + "\n")
        server.serve_forever(poll_interval=0.02)
    del hoard


def _drain(server: Server) -> None:
    replica = Handler.replica
    replica.drain()
    if replica.behaviour.ignores_sigterm:
        return

    def wait_and_stop() -> None:
        while replica.open:
            time.sleep(0.01)
        server.shutdown()

    threading.Thread(target=wait_and_stop, daemon=True).start()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("--artifact", "--tokenizer", "--socket", "--replica-id"):
        parser.add_argument(name, required=True)
    for name in ("--kv-blocks", "--max-sequences", "--max-batched-tokens", "--ready-fd"):
        parser.add_argument(name, type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
