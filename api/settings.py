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
    """Where everything is kept that no other setting places elsewhere."""

    database_url: str | None = None
    """SQLAlchemy's URL, such as postgresql+psycopg://...; by default candela.db in the data directory."""

    redis_url: str = "redis://127.0.0.1:6379/0"
    """A Redis or Valkey server: broker, leases, wake signals."""

    blobs_dir: Path | None = None
    """Uploads and artifacts; by default blobs in the data directory."""

    host: str = "127.0.0.1"
    """Address that the gateway listens on."""

    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """Port that the gateway listens on; `candela up` takes 0 for a free one."""

    metrics_addr: str = "127.0.0.1:9464"
    """host:port of the gateway's /metrics, apart from what clients reach."""

    secret_key: SecretStr
    """Signs part URLs and dashboard cookies. No default: a guessable one would let anyone write blobs."""

    public_url: str | None = None
    """Base of the URLs handed to clients; by default the one they called us by."""

    secure_cookies: bool = False
    """Mark the dashboard's cookie `Secure`: set it wherever TLS ends in front of the gateway."""

    log_level: str = "INFO"
    """The least level that is logged: DEBUG, INFO, WARNING, ERROR."""

    max_body_bytes: Annotated[int, Field(gt=0)] = 32 * _MIB
    """The largest body of a JSON request."""

    max_part_bytes: Annotated[int, Field(ge=5 * _MIB)] = 5 * 1024 * _MIB
    """The largest part of an upload."""

    part_url_life_s: Annotated[int, Field(gt=0)] = 6 * 3600
    """How long a signed part URL works."""

    kv_ceiling_tokens: Annotated[int, Field(ge=16)] = 16_384
    """KV pool of each replica of a deployment that doesn't say; the deployment keeps the value it was made
    with.
    """

    max_stop_strings: Annotated[int, Field(ge=1, le=16)] = 4
    """Stop strings a request may have."""

    max_logprobs: Annotated[int, Field(ge=0, le=20)] = 20
    """Alternatives a token that a request may ask for."""

    max_completion_prompts: Annotated[int, Field(ge=1)] = 64
    """Prompts that one call of /v1/completions may hold."""

    prompt_workers: Annotated[int, Field(ge=1, le=64)] = 2
    """Child processes that render templates and tokenize."""

    prompt_queue: Annotated[int, Field(ge=1)] = 256
    """Requests that may wait for one of them; beyond it 503."""

    prompt_time_limit_s: Annotated[float, Field(gt=0)] = 5.0
    """How long one prompt may take to render and tokenize."""

    request_deadline_s: Annotated[float, Field(gt=0)] = 300.0
    """A request's longest life, holding included, from its arrival."""

    max_held_requests: Annotated[int, Field(ge=0)] = 1000
    """Requests that may wait for a replica; beyond it 503 with Retry-After."""

    hold_comment_after_s: Annotated[float, Field(gt=0)] = 2.0
    """A stream that is held longer gets its headers and SSE comments."""

    hopeless_after_s: Annotated[float, Field(ge=0)] = 3.0
    """Held requests get 503 once their deployment has failed, with no replica starting, for so long."""

    replica_silence_s: Annotated[float, Field(gt=0)] = 120.0
    """A replica that sends no frame for this long is given up: every wait has a deadline."""

    reader_silence_s: Annotated[float, Field(gt=0)] = 60.0
    """A client that takes nothing of its answer for this long is taken to be gone; it loses its place."""

    reservation_lease_s: Annotated[float, Field(gt=0)] = 30.0
    """After a gateway dies, its requests are settled once this has passed."""

    shutdown_grace_s: Annotated[float, Field(ge=0)] = 30.0
    """How long streams may go on after SIGTERM."""

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
