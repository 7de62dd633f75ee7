"""The embedded Valkey server as a service: started again on the same port with the same password."""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass, field

from storage.embedded import RunningValkey, start_valkey
from storage.errors import ValkeyFailed

from .data_dir import DataDir
from .errors import StartFailed
from .identity import ProcessIdentity, identify
from .ports import claim_port


@dataclass(frozen=True, slots=True)
class ValkeyService:
    """`url` is known before the first start and stays, since the other processes are told it once."""

    data_dir: DataDir
    port: int = field(default_factory=lambda: claim_port("127.0.0.1", 0))
    password: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    name: str = "valkey"
    stop_rank: int = 9
    stop_grace_s: float = 10.0

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def spawn(self) -> Valkey:
        """Raises: `StartFailed`."""
        try:
            return Valkey(start_valkey(self.data_dir.root, self.port, self.password), self.data_dir)
        except ValkeyFailed as error:
            raise StartFailed(str(error)) from error


class Valkey:
    """The running server."""

    def __init__(self, server: RunningValkey, data_dir: DataDir) -> None:
        self._server = server
        self._data_dir = data_dir
        self.identity: ProcessIdentity = identify(server.pid)

    @property
    def exit_code(self) -> int | None:
        return self._server.process.poll()

    def terminate(self) -> None:
        self._server.process.terminate()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._server.process.kill()
        self._server.process.wait()

    def last_words(self) -> str:
        return f"see {self._data_dir.root / 'valkey' / 'valkey.log'}"
