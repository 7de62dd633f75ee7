"""What the images' health checks run: exit 0 when the process answers.

healthcheck.py http://HOST:PORT/PATH    one GET that must be answered with 200
healthcheck.py socket:PATH              a replica's readiness, over its Unix socket and with its secret
healthcheck.py worker                   a worker answers on the queue
"""

from __future__ import annotations

import http.client
import os
import socket
import sys
from urllib.parse import urlsplit

TIMEOUT_S = 4.0


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("replica", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def main(target: str) -> int:
    """The exit code: 0 healthy, 1 not."""
    try:
        return 0 if is_healthy(target) else 1
    except (OSError, http.client.HTTPException) as error:
        print(error, file=sys.stderr)
        return 1


def is_healthy(target: str) -> bool:
    if target == "worker":
        return worker_answers(os.environ["CANDELA_REDIS_URL"])
    if target.startswith("socket:"):
        from common.wire import SECRET_HEADER

        secret = {SECRET_HEADER: os.environ["CANDELA_REPLICA_SECRET"]}
        return answers_200(UnixConnection(target.removeprefix("socket:")), "/health/ready", secret)
    parts = urlsplit(target)
    assert parts.hostname is not None, "the image names a whole URL"
    return answers_200(
        http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_S), parts.path, {}
    )


def answers_200(connection: http.client.HTTPConnection, path: str, headers: dict[str, str]) -> bool:
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status == 200
    finally:
        connection.close()


def worker_answers(redis_url: str) -> bool:
    """Whether a worker replies. A dead one ends its container, so this is about one that lost its broker."""
    from storage.queue import make_celery

    return bool(make_celery(redis_url).control.ping(timeout=TIMEOUT_S / 2))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
