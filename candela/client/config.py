"""Where the platform is and which key to use: arguments, environment, then `<data-dir>/client.json`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import NotConfigured

CLIENT_FILE = "client.json"
DEFAULT_DATA_DIR = "~/.candela"


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """An address without a trailing slash, and the key sent with every call."""

    url: str
    api_key: str

    def __repr__(self) -> str:
        return f"ClientConfig(url={self.url!r}, api_key=***)"


def default_data_dir(env: Mapping[str, str]) -> Path:
    return Path(env.get("CANDELA_DATA_DIR") or DEFAULT_DATA_DIR).expanduser()


def load_config(
    url: str | None = None,
    api_key: str | None = None,
    *,
    data_dir: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> ClientConfig:
    """Find the address and the key; each part is looked up on its own.

    A key from `client.json` is sent only to the address written beside it, never to another one.

    Raises:
        NotConfigured: a part is nowhere to be found or cannot be one, or the file cannot be read.
    """
    env = os.environ if env is None else env
    url = url or env.get("CANDELA_URL")
    api_key = api_key or env.get("CANDELA_API_KEY")
    if api_key and not (api_key.isascii() and api_key.isprintable() and " " not in api_key):
        raise NotConfigured("the API key holds characters that no key has: check CANDELA_API_KEY")
    if url and not url.startswith(("http://", "https://")):
        raise NotConfigured(f"the address {url!r} must start with http:// or https://: check CANDELA_URL")
    if url and api_key:
        return ClientConfig(url.rstrip("/"), api_key)
    path = (data_dir or default_data_dir(env)) / CLIENT_FILE
    stored = read_config(path)
    if url and url.rstrip("/") != stored.url:
        raise NotConfigured(f"no API key for {url}: set CANDELA_API_KEY ({path} belongs to {stored.url})")
    return ClientConfig(stored.url, api_key or stored.api_key)


def read_config(path: Path) -> ClientConfig:
    """Raises: `NotConfigured` when there is no such file or it does not hold an address and a key."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return ClientConfig(str(raw["url"]).rstrip("/"), str(raw["api_key"]))
    except FileNotFoundError:
        raise NotConfigured(
            f"no platform is known here: start one with `candela up`, or set CANDELA_URL and CANDELA_API_KEY "
            f"({path} does not exist)"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotConfigured(
            f"{path} cannot be used ({error}); start `candela up` again to rewrite it"
        ) from None


def write_config(path: Path, config: ClientConfig) -> None:
    """Write `client.json` so that only its owner can read it; replaces an older one in one step."""
    temporary = path.with_suffix(".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)
        json.dump({"url": config.url, "api_key": config.api_key}, file)
    temporary.replace(path)
