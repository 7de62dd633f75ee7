"""Starts a replica process and talks to it over its Unix socket, for tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from common.wire import SECRET_HEADER, Frame, GenerateRequest, ReplicaStats, decode_frame
from tests.support.engines import Answer

ROOT = Path(__file__).resolve().parents[2]
SECRET = "a-secret-of-this-test"


@dataclass
class RunningReplica:
    """A child process, what it said when it was ready, and a client with its secret."""

    process: subprocess.Popen[bytes]
    socket: Path
    ready: ReplicaStats | None
    log_path: Path
    client: httpx.Client

    def stats(self) -> ReplicaStats:
        return ReplicaStats.from_json(self.client.get("/stats").raise_for_status().content)

    @contextmanager
    def stream(self, request: GenerateRequest) -> Iterator[Iterator[Frame]]:
        with self.client.stream("POST", "/generate", content=request.to_json()) as response:
            assert response.status_code == 200
            yield (decode_frame(line) for line in _lines(response))

    def generate(self, request: GenerateRequest) -> Answer:
        answer = Answer()
        with self.stream(request) as frames:
            for frame in frames:
                answer.add(frame)
        return answer

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.process.kill()

    def wait(self, timeout_s: float = 20.0) -> int:
        return self.process.wait(timeout_s)

    def log(self) -> str:
        return self.log_path.read_text()


@contextmanager
def replica(
    *options: str, kv_blocks: int = 256, wait: bool = True, **fake: object
) -> Iterator[RunningReplica]:
    """A replica over the fake program; killed at the end if it still runs."""
    with tempfile.TemporaryDirectory(prefix="rep", dir="/tmp") as folder:
        home = Path(folder)
        (home / "fake.json").write_text(json.dumps(fake))
        read_fd, write_fd = os.pipe()
        log_path = home / "log"
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                _command(home, kv_blocks, write_fd, options),
                env={"PATH": os.environ["PATH"], "CANDELA_REPLICA_SECRET": SECRET},
                pass_fds=(write_fd,),
                cwd=ROOT,
                stderr=log,
            )
        os.close(write_fd)
        with open(read_fd) as pipe, _client(home / "s") as client:
            line = pipe.readline() if wait else ""
            ready = ReplicaStats.from_json(line) if line else None
            try:
                yield RunningReplica(process, home / "s", ready, log_path, client)
            finally:
                process.kill()
                process.wait()


def _lines(response: httpx.Response) -> Iterator[bytes]:
    """Lines end with a newline and nothing else, whatever Unicode says of other characters in them."""
    pending = b""
    for part in response.iter_bytes():
        *lines, pending = (pending + part).split(b"\n")
        yield from lines
    assert not pending, "the last line is complete"


def _command(home: Path, kv_blocks: int, write_fd: int, options: tuple[str, ...]) -> list[str]:
    fixed = {
        "artifact": home,
        "tokenizer": home,
        "socket": home / "s",
        "replica-id": "rep_test",
        "kv-blocks": kv_blocks,
        "max-sequences": 8,
        "max-batched-tokens": 64,
        "ready-fd": write_fd,
    }
    return [
        sys.executable,
        "-m",
        "tests.support.replica_with_fake_program",
        *(f"--{name}={value}" for name, value in fixed.items()),
        *options,
    ]


def _client(socket: Path) -> httpx.Client:
    transport = httpx.HTTPTransport(uds=str(socket))
    return httpx.Client(
        transport=transport, base_url="http://replica", headers={SECRET_HEADER: SECRET}, timeout=30
    )
