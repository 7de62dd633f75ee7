"""What is compiled, as one digest: equal keys mean that an artifact can be reused. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from storage.records import RevisionFile
from worker.errors import InvalidCompileOptions
from worker.protocol import CompileSettings

_FORMAT = 1
_NAMED_BUDGETS = ("none", "quick", "full")
_DTYPES = ("bf16", "f32")
_LONGEST_BUDGET_S = 24 * 3600.0
_WHOLE_LIMITS = {
    "max_context": 1 << 20,
    "seed": 1 << 31,
    "max_batched_tokens": 1 << 16,
    "max_sequences": 1024,
}


def build_key(files: Sequence[RevisionFile], settings: CompileSettings, compiler_version: str) -> str:
    """Hex sha256 over every file's name and digest (config.json is one), the options and the compiler."""
    facts = {
        "format": _FORMAT,
        "files": sorted([file.name, file.sha256] for file in files),
        "settings": asdict(settings),
        "compiler": compiler_version,
    }
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def settings_from(options: Mapping[str, Any], default_budget: str) -> CompileSettings:
    """The revision's options, checked, with defaults for those that are absent or null.

    Raises:
        InvalidCompileOptions: an unknown name or a value out of range; the sentence names it.
    """
    known = {f.name for f in fields(CompileSettings)}
    if unknown := sorted(set(options) - known):
        raise InvalidCompileOptions(f"unknown compile options {unknown}; known are {sorted(known)}")
    given = {name: value for name, value in options.items() if value is not None}
    given["budget"] = _budget(given.get("budget", default_budget))
    if given.get("dtype", "bf16") not in _DTYPES:
        raise InvalidCompileOptions(f"dtype must be one of {_DTYPES}, not {given['dtype']!r}")
    if not isinstance(given.get("target", "cpu"), str):
        raise InvalidCompileOptions(f"target must be a string, not {given['target']!r}")
    for name in _WHOLE_LIMITS.keys() & given.keys():
        given[name] = _whole(name, given[name])
    return CompileSettings(**given)


def _budget(value: object) -> str | float:
    if isinstance(value, str) and value in _NAMED_BUDGETS:
        return value
    try:
        seconds = (
            float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else -1.0
        )
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _LONGEST_BUDGET_S:
        raise InvalidCompileOptions(f"budget must be one of {_NAMED_BUDGETS} or seconds, not {value!r}")
    return seconds


def _whole(name: str, value: object) -> int:
    lowest = 0 if name == "seed" else 1
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= _WHOLE_LIMITS[name]:
        raise InvalidCompileOptions(
            f"{name} must be a whole number from {lowest} to {_WHOLE_LIMITS[name]}, not {value!r}"
        )
    return value
