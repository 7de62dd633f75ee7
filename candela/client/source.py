"""A checkpoint on this machine, read for sending: names, sizes, digests, and what triage needs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from compiler.checkpoint import INDEX_NAME, CheckpointError, ProblemCode
from compiler.checkpoint.names import is_pickle_name
from compiler.checkpoint.safetensors import MAX_HEADER_BYTES, read_head
from compiler.checkpoint.strict_json import parse_object

from .errors import CheckpointUnusable, Problem
from .progress import Meter, OnProgress, Phase

T = TypeVar("T")
CONFIG_FILE = "config.json"
_BLOCK_BYTES = 1 << 20
_WEIGHTS = (".safetensors", ".gguf")
_COMPANIONS = (".json", ".jinja", ".model", ".txt")
_LENGTH_PREFIX = 8


@dataclass(frozen=True, slots=True)
class LocalFile:
    name: str
    path: Path
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class LocalCheckpoint:
    """`config` is the parsed config.json; `headers`: the shard index, each safetensors header."""

    files: tuple[LocalFile, ...]
    config: Mapping[str, Any] | None
    headers: Mapping[str, Any]


def read_source(path: Path, on_progress: OnProgress) -> LocalCheckpoint:
    """Read what describes a checkpoint (a directory or one file), then hash every file of it.

    Raises:
        CheckpointUnusable: there are no weights, or what describes them cannot be read.
    """
    paths = (path,) if path.is_file() else tuple(choose_files(path.iterdir()))
    if not paths:
        message = f"{path} holds no weights: a checkpoint has .safetensors or .gguf files"
        raise CheckpointUnusable((Problem("missing_weights", message, str(path)),))
    config, headers = _describe(paths)
    meter = Meter(Phase.HASHING, 0, sum(p.stat().st_size for p in paths), on_progress)
    with ThreadPoolExecutor(2, thread_name_prefix="hash") as pool:
        files = tuple(pool.map(partial(_hash, meter), paths))
    return LocalCheckpoint(files, config, headers)


def choose_files(paths: Iterable[Path]) -> list[Path]:
    """The files of a directory that make a checkpoint, by name.

    Weights in formats that run code when read are left out, unless there are no others: then they are named,
    so that the platform can say what to do about them. Nothing is chosen where there are no weights at all.
    """
    files = sorted(p for p in paths if p.is_file() and not p.name.startswith("."))
    weights = [p for p in files if p.suffix.lower() in _WEIGHTS] or [
        p for p in files if is_pickle_name(p.name)
    ]
    companions = [p for p in files if p.suffix.lower() in _COMPANIONS]
    return sorted([*weights, *companions]) if weights else []


def read_part(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)


def _describe(paths: Iterable[Path]) -> tuple[Mapping[str, Any] | None, Mapping[str, Any]]:
    problems: list[Problem] = []
    config: Mapping[str, Any] | None = None
    headers: dict[str, Any] = {}
    for path in paths:
        if path.name == CONFIG_FILE:
            config = _checked(_read_config, path, problems)
        elif path.name == INDEX_NAME:
            headers[path.name] = _checked(_read_index, path, problems)
        elif path.suffix.lower() == ".safetensors":
            headers[path.name] = _checked(_read_weight_header, path, problems)
    if problems:
        raise CheckpointUnusable(tuple(problems))
    return config, headers


def _checked(read: Callable[[Path], T], path: Path, problems: list[Problem]) -> T | None:
    """What `read` gives, or None after adding to `problems`, so that all of them are told at once."""
    try:
        return read(path)
    except CheckpointError as error:
        problems.extend(Problem(str(p.code), p.message, p.where) for p in error.problems)
        return None


def _read_config(path: Path) -> Mapping[str, Any]:
    return parse_object(path.read_bytes(), path.name, ProblemCode.BAD_CONFIG)


def _read_index(path: Path) -> Mapping[str, Any]:
    return parse_object(path.read_bytes(), path.name, ProblemCode.BAD_INDEX)


def _read_weight_header(path: Path) -> Mapping[str, Any]:
    head = read_head(path, path.name)
    return parse_object(head[_LENGTH_PREFIX:], path.name, ProblemCode.BAD_HEADER, max_bytes=MAX_HEADER_BYTES)


def _hash(meter: Meter, path: Path) -> LocalFile:
    digest, size_bytes = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            size_bytes += len(block)
            meter.add(len(block))
    return LocalFile(path.name, path, size_bytes, digest.hexdigest())
