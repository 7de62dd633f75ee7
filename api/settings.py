"""The gateway's settings: every `CANDELA_` variable it reads, with defaults that run on a laptop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

_MIB = 1 << 20


class GatewaySettings(BaseSettings):
    """Read once, in `api.main`; passed down as values."""

    model_config = SettingsConfigDict(env_prefix="CANDELA_", frozen=True, extra="ignore")

    data_dir: Path = Path("~/.candela")
    database_url: str | None = None
    redis_url: str = "redis://127.0.0.1:6379/0"
    blobs_dir: Path | None = None
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    metrics_addr: str = "127.0.0.1:9464"
    secret_key: SecretStr
    """Signs part URLs and dashboard cookies. No default: a guessable one would let anyone write blobs."""

    public_url: str | None = None
    """Base of the URLs handed to clients; by default the one they called us by."""

    secure_cookies: bool = False
    """Mark the dashboard's cookie `Secure`: set it wherever TLS ends in front of the gateway."""

    log_level: str = "INFO"

    max_body_bytes: Annotated[int, Field(gt=0)] = 32 * _MIB
    max_part_bytes: Annotated[int, Field(ge=5 * _MIB)] = 5 * 1024 * _MIB
    part_url_life_s: Annotated[int, Field(gt=0)] = 6 * 3600

    kv_ceiling_tokens: Annotated[int, Field(ge=16)] = 16_384
    """KV pool of each replica of a deployment that doesn't say; the deployment keeps the value it was made
    with.
    """

    max_stop_strings: Annotated[int, Field(ge=1, le=16)] = 4
    max_logprobs: Annotated[int, Field(ge=0, le=20)] = 20
    max_completion_prompts: Annotated[int, Field(ge=1)] = 64

    prompt_workers: Annotated[int, Field(ge=1, le=64)] = 2
    prompt_queue: Annotated[int, Field(ge=1)] = 256
    prompt_time_limit_s: Annotated[float, Field(gt=0)] = 5.0

    request_deadline_s: Annotated[float, Field(gt=0)] = 300.0
    max_held_requests: Annotated[int, Field(ge=0)] = 1000
    hold_comment_after_s: Annotated[float, Field(gt=0)] = 2.0
    replica_silence_s: Annotated[float, Field(gt=0)] = 120.0
    """A replica that sends no frame for this long is given up: every wait has a deadline."""

    reservation_lease_s: Annotated[float, Field(gt=0)] = 30.0
    shutdown_grace_s: Annotated[float, Field(ge=0)] = 30.0

    @property
    def home(self) -> Path:
        return self.data_dir.expanduser()

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.home / 'candela.db'}"

    @property
    def blobs(self) -> Path:
        return (self.blobs_dir or self.home / "blobs").expanduser()

    def metrics_host_port(self) -> tuple[str, int]:
        host, _, port = self.metrics_addr.rpartition(":")
        return host or "127.0.0.1", int(port)
