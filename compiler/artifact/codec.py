"""Manifest to bytes and back.

Reading is strict: every field present and of its type, no other field, only natural numbers, and a digest
over it all, so that a damaged manifest is never half believed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from compiler.artifact.errors import ArtifactError
from compiler.artifact.manifest import MANIFEST_FILE, Manifest

FORMAT = "candela-artifact"
VERSION = 1
MAX_MANIFEST_BYTES = 64 << 20

_MAX_INT = 1 << 53
_MAX_TEXT = 4096

T = TypeVar("T")


def encode_manifest(manifest: Manifest) -> bytes:
    """The text of `manifest.json`: canonical, so that equal manifests have equal bytes."""
    return encode_body(manifest, FORMAT, VERSION)


def decode_manifest(data: bytes) -> Manifest:
    """Parse the text of `manifest.json`. What its values mean together is `check_manifest`'s business.

    Raises:
        ArtifactError: another format or version, a damaged digest, or a field that is missing, unknown or of
            the wrong type.
    """
    return decode_body(data, Manifest, FORMAT, VERSION, MANIFEST_FILE)


def encode_body(value: object, kind: str, version: int) -> bytes:
    """A value of the manifest's kinds as a document of its own: canonical, with a digest over its body."""
    body = _plain(value)
    return _canonical({"format": kind, "version": version, "digest": _digest(body), "body": body}) + b"\n"


def decode_body(data: bytes, expected: type[T], kind: str, version: int, where: str) -> T:
    """What `encode_body` wrote.

    Raises:
        ArtifactError: another format or version, a damaged digest, or a field that is missing, unknown or of
            the wrong type.
    """
    document = _parse(data, where)
    if document.get("format") != kind or document.get("version") != version:
        raise ArtifactError(f"not a {kind} of version {version}", where=where)
    body = document.get("body")
    if set(document) != {"format", "version", "digest", "body"} or document["digest"] != _digest(body):
        raise ArtifactError("its digest does not match its content", where=where)
    return _typed(expected, body, where)


def _parse(data: bytes, where: str) -> dict[str, object]:
    if len(data) > MAX_MANIFEST_BYTES:
        raise ArtifactError(f"{len(data)} bytes are too many", where=where)
    try:
        document = json.loads(
            data.decode(), object_pairs_hook=_unique, parse_float=_no_number, parse_constant=_no_number
        )
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"not valid JSON: {str(error)[:200]}", where=where) from None
    if not isinstance(document, dict):
        raise ArtifactError("not a JSON object", where=where)
    return document


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key appears twice")
    return result


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is no integer")


def _digest(body: object) -> str:
    return hashlib.sha256(_canonical(body)).hexdigest()


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _plain(value: object) -> object:
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _typed(kind: type[T], value: object, where: str) -> T:
    """`value` as `kind`: str, int, bool, a StrEnum, a tuple or mapping of such, or a dataclass of such."""
    read: Any = _read_dataclass if is_dataclass(kind) else _read_generic if get_origin(kind) else _read_scalar
    result: T = read(kind, value, where)
    return result


def _read_dataclass(kind: Any, value: object, where: str) -> object:
    if not isinstance(value, dict):
        raise _wrong("an object", value, where)
    names = [f.name for f in fields(kind)]
    if set(value) != set(names):
        strange = sorted(set(value) ^ set(names))
        raise ArtifactError(f"missing or unknown: {', '.join(strange)[:200]}", where=where)
    hints = _hints(kind)
    return kind(**{name: _typed(hints[name], value[name], f"{where}.{name}") for name in names})


def _read_generic(kind: Any, value: object, where: str) -> object:
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise _wrong("a list", value, where)
        return tuple(_typed(get_args(kind)[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if not isinstance(value, dict):
        raise _wrong("an object", value, where)
    item_kind = get_args(kind)[1]
    return {key: _typed(item_kind, item, f"{where}[{key[:80]!r}]") for key, item in value.items()}


def _read_scalar(kind: Any, value: object, where: str) -> object:
    if issubclass(kind, StrEnum):
        if not isinstance(value, str) or value not in kind._value2member_map_:
            raise _wrong(f"one of {', '.join(kind)}", value, where)
        return kind(value)
    if kind is int:
        if type(value) is not int or not 0 <= value < _MAX_INT:
            raise _wrong("a natural number", value, where)
    elif kind is str:
        if not isinstance(value, str) or len(value) > _MAX_TEXT:
            raise _wrong("a short text", value, where)
    elif type(value) is not bool:
        raise _wrong("true or false", value, where)
    return value


def _wrong(expected: str, value: object, where: str) -> ArtifactError:
    return ArtifactError(f"expected {expected}, found {type(value).__name__}", where=where)


_HINTS: dict[type, dict[str, Any]] = {}


def _hints(kind: type) -> dict[str, Any]:
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind)
    return _HINTS[kind]
