"""What a worker and its compile child say to each other: JSON lines, one message a line.

Down the child's stdin: a `CompileRequest`, then any number of `Word`s; end of file: the worker is gone.
Up its stdout: any number of `Progress`, then one `Done` or `Failed`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class CompileSettings:
    """The compile options of a revision, resolved. `budget` is a named one or seconds."""

    dtype: str = "bf16"
    budget: str | float = "quick"
    target: str = "cpu"
    max_context: int | None = None
    seed: int = 0
    max_batched_tokens: int = 512
    max_sequences: int = 32


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """Compile `checkpoint_dir` into `out_dir`/artifact and `out_dir`/tokenizer; `cache_dir` is shared.

    `journal` is the job's: an attempt goes on where an earlier one ended.
    """

    checkpoint_dir: str
    out_dir: str
    cache_dir: str
    settings: CompileSettings = field(default_factory=CompileSettings)
    journal: str | None = None


class Word(StrEnum):
    """What a worker tells a running child. `busy`: replicas of this machine serve, so don't measure now."""

    STOP = "stop"
    BUSY = "busy"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Progress:
    """`fraction` (0..1) is of the child's whole work."""

    stage: str
    fraction: float
    message: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """`info` becomes the revision's: sizes, KV geometry, report."""

    info: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Failed:
    code: str
    message: str


Report = Progress | Done | Failed
_REPORTS: Mapping[str, type[Progress] | type[Done] | type[Failed]] = {
    "progress": Progress,
    "done": Done,
    "failed": Failed,
}
_TAGS = {cls: tag for tag, cls in _REPORTS.items()}


def encode_request(request: CompileRequest) -> bytes:
    return _line(asdict(request))


def decode_request(line: bytes) -> CompileRequest:
    """Raises: ValueError, TypeError, KeyError: not a request."""
    raw = json.loads(line)
    return CompileRequest(**{**raw, "settings": CompileSettings(**raw["settings"])})


def encode_report(report: Report) -> bytes:
    return _line({"t": _TAGS[type(report)], **asdict(report)})


def decode_report(line: bytes) -> Report:
    """Raises: ValueError: not a report."""
    try:
        raw = json.loads(line)
        return _REPORTS[raw.pop("t")](**raw)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a report: {line!r:.120}") from error


def _line(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
