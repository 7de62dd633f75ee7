"""File names of an upload: which are safe, which are pickles, which hold the weights."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from pathlib import PurePosixPath

from compiler.checkpoint.errors import Problem, ProblemCode
from compiler.checkpoint.sniff import PICKLE_ADVICE
from compiler.checkpoint.strict_json import shown

MAX_FILES = 1000
MAX_NAME_BYTES = 512
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|]')
_MAX_PARTS = 8


def name_fault(name: str) -> str | None:
    """Why `name` is no safe relative file name (`/` separates folders), or none."""
    if not name or len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        return f"must have 1 to {MAX_NAME_BYTES} bytes"
    if _FORBIDDEN.search(name) or any(unicodedata.category(char) in ("Cs", "Cf") for char in name):
        return "holds a character that file systems or terminals treat specially"
    if name.startswith(("/", "~")):
        return "must be relative to the checkpoint's folder"
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "must not leave the checkpoint's folder or name a folder"
    if any(part != part.strip() for part in parts) or len(parts) > _MAX_PARTS:
        return f"must have at most {_MAX_PARTS} parts without spaces around them"
    return None


def check_names(names: Iterable[str]) -> list[Problem]:
    """Problems of the list of names as a whole: unsafe, equal to one another on some disk, or pickles."""
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    for name in names:
        fault = name_fault(name)
        if fault is not None:
            problems.append(Problem(ProblemCode.BAD_NAME, f"file name {shown(name)} {fault}", name[:200]))
            continue
        folded = unicodedata.normalize("NFC", name).casefold()
        if folded in seen:
            message = f"file names {shown(seen[folded])} and {shown(name)} are the same file on some disks"
            problems.append(Problem(ProblemCode.DUPLICATE_NAME, message, name))
        seen[folded] = name
        if is_pickle_name(name):
            problems.append(pickle_problem(name))
    return problems


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
