"""Parse JSON from strangers: bounded, no duplicate keys, no NaN, integers that are integers."""

from __future__ import annotations

import json
import reprlib
from typing import NoReturn, TypeGuard

from compiler.checkpoint.errors import ProblemCode, refusal

MAX_JSON_BYTES = 16 << 20
"""Config, index and tokenizer config files are far smaller."""


def parse_object(
    data: bytes, where: str, code: ProblemCode, max_bytes: int = MAX_JSON_BYTES
) -> dict[str, object]:
    """Parse a JSON object.

    Raises:
        CheckpointError: with `code`, when `data` is too large, not UTF-8, not JSON, not an object, nested too
            deep, or names a key twice.
    """
    if len(data) > max_bytes:
        raise refusal(code, f"{where} has {len(data)} bytes; at most {max_bytes} are read", where)
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except RecursionError:
        raise refusal(code, f"{where} is nested too deep", where) from None
    except (ValueError, UnicodeDecodeError) as error:
        raise refusal(code, f"{where} is not valid JSON: {error}", where) from None
    if not isinstance(value, dict):
        raise refusal(code, f"{where} must hold a JSON object, not {type(value).__name__}", where)
    return value


def is_int(value: object) -> TypeGuard[int]:
    """True for a JSON integer; a boolean or 1.0 is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def shown(value: object) -> str:
    """A short form for a message, whatever the size and depth of `value`."""
    return _REPR.repr(value)


_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxstring, _REPR.maxother, _REPR.maxlong = 2, 80, 80, 40


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"key {shown(twice)} appears twice")
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
