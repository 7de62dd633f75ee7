"""What a compile is asked for, and what it tells while it runs and when it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from compiler.errors import CompilerError

VERSION = "1"
"""Part of every cache key: raised when the same input may give another artifact."""


class BadOption(CompilerError):
    """A compile option that means nothing."""

    code = "invalid_option"


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What to compile for. `budget` is "none", "quick", "full", or seconds; `level` None takes this CPU's
    best, and may name several, comma-separated, for one artifact that runs on more CPUs. `compiler` is a C++
    compiler's command; None looks for one.
    """

    dtype: str = "bf16"
    budget: str | float = "quick"
    target: str = "cpu"
    max_context: int | None = None
    seed: int = 0
    max_batched_tokens: int = 512
    max_sequences: int = 32
    threads: int | None = None
    level: str | None = None
    cache_dir: Path | None = None
    compiler: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """`fraction` is of the whole compile."""

    stage: str
    fraction: float
    message: str = ""


@dataclass(frozen=True, slots=True)
class CompileReport:
    """What a compile did; the artifact holds it as report.json. `model` are the facts that serving needs."""

    seconds: float
    target: str
    level: str
    compiler: str
    definitions: int
    distinct: int
    candidates: int
    refused: int
    memory: Mapping[str, object]
    model: Mapping[str, object]
    kernels: tuple[Mapping[str, object], ...] = field(default_factory=tuple)
    moves: tuple[Mapping[str, object], ...] = field(default_factory=tuple)
