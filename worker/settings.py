"""The worker's settings: every `CANDELA_` variable it reads, with defaults that run on a laptop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from common.machine import usable_memory_bytes

_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV")
_INHERITED_PREFIXES = ("CC", "CXX", "OMP_", "OPENBLAS_", "MKL_")


class WorkerSettings(BaseSettings):
    """Read once, in `worker.main`; passed down as values."""

    model_config = SettingsConfigDict(env_prefix="CANDELA_", frozen=True, extra="ignore")

    data_dir: Path = Path("~/.candela")
    database_url: str | None = None
    redis_url: str = "redis://127.0.0.1:6379/0"
    blobs_dir: Path | None = None
    log_level: str = "INFO"

    compile_budget: str = "quick"
    """What a revision that names no budget gets: none, quick, full, or seconds."""

    compile_memory_bytes: Annotated[int, Field(gt=0)] | None = None
    """What a compile may use; by default nine tenths of this machine's memory."""

    compile_niceness: Annotated[int, Field(ge=0, le=19)] = 10
    """By how much compiling gives way to serving on the same machine."""

    compile_stop_grace_s: Annotated[float, Field(ge=0)] = 5.0
    """How long a compile may take to stop before it is killed."""

    job_lease_s: Annotated[float, Field(gt=0)] = 15.0
    """A job whose worker was not heard of for this long is given to another."""

    @property
    def home(self) -> Path:
        return self.data_dir.expanduser().resolve()

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.home / 'candela.db'}"

    @property
    def blobs(self) -> Path:
        return (self.blobs_dir or self.home / "blobs").expanduser().resolve()

    @property
    def memory_limit_bytes(self) -> int:
        """Reads the machine's size where the settings leave it open."""
        return self.compile_memory_bytes or usable_memory_bytes() * 9 // 10


def compile_environment(environment: dict[str, str]) -> dict[str, str]:
    """What the compile child inherits: how to find the toolchain, and no credentials."""
    return {
        name: value
        for name, value in environment.items()
        if name in _INHERITED or name.startswith(_INHERITED_PREFIXES)
    }
