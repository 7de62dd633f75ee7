"""The layout of a platform's data directory, and its secrets. All of it is readable by its owner only."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from .errors import StartFailed

_LONGEST_ROOT = 76  # a Unix socket's path has 107 bytes, and replicas' sockets lie in run/


@dataclass(frozen=True, slots=True)
class DataDir:
    root: Path

    @property
    def blobs(self) -> Path:
        return self.root / "blobs"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def client_file(self) -> Path:
        return self.root / "client.json"

    @property
    def secrets_file(self) -> Path:
        return self.root / "secrets.json"

    @property
    def state_file(self) -> Path:
        """Who runs here: the supervisor, its children, the address."""
        return self.run / "up.json"

    @property
    def lock_file(self) -> Path:
        """Held (flock) by the supervisor as long as it lives, however it ends."""
        return self.run / "up.lock"

    @property
    def database_url(self) -> str:
        return f"sqlite:///{self.root / 'candela.db'}"

    def create(self) -> None:
        """Make the directories, mode 0700.

        Raises:
            StartFailed: the place cannot be written, belongs to somebody else, or its path is too long.
        """
        if len(os.fsencode(self.root)) > _LONGEST_ROOT:
            raise StartFailed(
                f"{self.root} is too long a path for a data directory (sockets lie in it): "
                f"pass --data-dir with at most {_LONGEST_ROOT} bytes"
            )
        try:
            for path in (self.root, self.blobs, self.run, self.logs, self.root / "cache"):
                path.mkdir(mode=0o700, parents=path == self.root, exist_ok=True)
            self.root.chmod(0o700)
        except OSError as error:
            raise StartFailed(f"cannot use {self.root} as the data directory: {error}") from error


@dataclass(frozen=True, slots=True)
class Secrets:
    """`secret_key` signs part URLs and dashboard cookies; lost with the file, both merely become invalid."""

    secret_key: str

    def __repr__(self) -> str:
        return "Secrets(***)"


def load_secrets(path: Path) -> Secrets:
    """Read the secrets, or make them at the first start.

    Raises:
        StartFailed: the file exists but cannot be read as ours.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return Secrets(str(raw["secret_key"]))
    except FileNotFoundError:
        return _make_secrets(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StartFailed(
            f"{path} cannot be read ({error!r}): restore it, or remove it to make new secrets"
        ) from error


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step, mode 0600: a reader sees the old text or the new, never half of one."""
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _make_secrets(path: Path) -> Secrets:
    made = Secrets(secrets.token_urlsafe(32))
    write_private(path, json.dumps({"secret_key": made.secret_key}))
    return made
