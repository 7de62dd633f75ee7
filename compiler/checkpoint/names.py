"""File names of an upload: which are safe, which are pickles, which hold the weights."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from compiler.checkpoint.errors import Problem, ProblemCode
from compiler.checkpoint.sniff import PICKLE_ADVICE
from compiler.checkpoint.strict_json import shown

MAX_FILES = 1000
MAX_NAME_BYTES = 512
MAX_PART_BYTES = 255
"""What Linux, macOS and Windows take between two slashes."""
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|]')
_MAX_PARTS = 8


def name_fault(name: str) -> str | None:
    """Why `name` is no safe relative file name (`/` separates folders), or none."""
    if not name or _nbytes(name) > MAX_NAME_BYTES:
        return f"must have 1 to {MAX_NAME_BYTES} bytes"
    if _FORBIDDEN.search(name) or not name.isprintable():
        return "holds a character that file systems or terminals treat specially"
    if name.startswith(("/", "~")):
        return "must be relative to the checkpoint's folder"
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "must not leave the checkpoint's folder or name a folder"
    if any(part != part.strip() for part in parts) or len(parts) > _MAX_PARTS:
        return f"must have at most {_MAX_PARTS} parts without spaces around them"
    if any(_nbytes(part) > MAX_PART_BYTES for part in parts):
        return f"has a part of more than {MAX_PART_BYTES} bytes"
    return None


def check_names(names: Iterable[str]) -> list[Problem]:
    """Problems of the list of names as a whole: unsafe, in each other's way on some disk, or pickles."""
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    safe: list[str] = []
    for name in names:
        fault = name_fault(name)
        if fault is not None:
            problems.append(Problem(ProblemCode.BAD_NAME, f"file name {shown(name)} {fault}", name[:200]))
            continue
        folded = _folded(name)
        if folded in seen:
            message = f"file names {shown(seen[folded])} and {shown(name)} are the same file on some disks"
            problems.append(Problem(ProblemCode.DUPLICATE_NAME, message, name))
        seen[folded] = name
        safe.append(name)
        if is_pickle_name(name):
            problems.append(pickle_problem(name))
    return problems + [p for name in safe if (p := _below_a_file(name, seen)) is not None]


def _below_a_file(name: str, files: Mapping[str, str]) -> Problem | None:
    """A problem when a folder of `name` is one of `files` (folded name to name) itself."""
    for folder in PurePosixPath(_folded(name)).parents:
        if (file := files.get(str(folder))) is not None:
            message = f"{shown(file)} would have to be a file and the folder of {shown(name)}: rename one"
            return Problem(ProblemCode.DUPLICATE_NAME, message, name)
    return None


def _folded(name: str) -> str:
    """Equal for names that a disk which ignores case or normal form takes for one (Unicode's D145)."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())


def _nbytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def is_pickle_name(name: str) -> bool:
    """True for suffixes under which frameworks keep pickles."""
    return PurePosixPath(name).suffix.lower() in PICKLE_SUFFIXES


def pickle_problem(name: str) -> Problem:
    message = (
        f"{name}: only safetensors and GGUF weights are accepted; {PICKLE_ADVICE}, or leave this file out"
    )
    return Problem(ProblemCode.UNEXPECTED_PICKLE, message, name)


def is_numbered_shard(name: str) -> bool:
    """True for `model-00001-of-00003.safetensors` and the like."""
    return re.search(r"-\d{5}-of-\d{5}\.(safetensors|gguf)$", name) is not None
