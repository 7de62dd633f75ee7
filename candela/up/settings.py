"""What `candela up` may be told by the environment. Everything has a default that runs on a laptop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

DEFAULT_PORT = 8080


class UpSettings(BaseSettings):
    """Read once by the process that starts the platform; the command's options override single fields.

    `redis_url` and `database_url` name servers that are run elsewhere; without them they are embedded.
    """

    model_config = SettingsConfigDict(env_prefix="CANDELA_", frozen=True, extra="ignore")

    data_dir: Path = Path("~/.candela")
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = DEFAULT_PORT
    metrics_addr: str | None = None
    scheduler_metrics_addr: str | None = None
    redis_url: SecretStr | None = None
    database_url: SecretStr | None = None
    workers: Annotated[int, Field(ge=0, le=64)] = 1
    """Compile workers that `candela up` runs."""

    ready_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """How long `candela up` waits for the gateway to answer."""

    @property
    def home(self) -> Path:
        return self.data_dir.expanduser().absolute()
