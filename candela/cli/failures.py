"""Which exceptions are answers rather than bugs. Looks only at error trees that are loaded already."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass

_ROOTS: Mapping[str, str] = {
    "candela.client.errors": "ClientError",
    "common.errors": "PlatformError",
    "compiler.errors": "CompilerError",
    "compiler.checkpoint": "CheckpointError",
}
"""Module -> root of the error tree it defines."""

_MACHINES_FAULT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE})


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """`message` is one line."""

    code: str
    message: str
    problems: tuple[Mapping[str, str | None], ...]

    def as_json(self) -> str:
        error: dict[str, object] = {"code": self.code, "message": self.message}
        if self.problems:
            error["problems"] = self.problems
        return json.dumps({"error": error})


def known_failure(error: Exception) -> KnownFailure | None:
    """How to tell the user; None for an exception that nobody planned, which deserves its traceback."""
    if isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError | IsADirectoryError):
        return KnownFailure("file_error", f"{error.strerror}: {error.filename}", ())
    if isinstance(error, OSError) and error.errno in _MACHINES_FAULT:
        where = f": {error.filename}" if error.filename else ""
        return KnownFailure("file_error", f"{error.strerror}{where}", ())
    if not isinstance(error, _known_classes()):
        return None
    problems = tuple(
        {"code": p.code, "message": p.message, "where": p.where} for p in getattr(error, "problems", ())
    )
    code = str(getattr(error, "code", type(error).__name__))
    return KnownFailure(code, " ".join(str(error).split()) or code, problems)


def _known_classes() -> tuple[type[Exception], ...]:
    loaded = ((sys.modules.get(module), name) for module, name in _ROOTS.items())
    found = (getattr(module, name, None) for module, name in loaded if module is not None)
    return tuple(cls for cls in found if isinstance(cls, type) and issubclass(cls, Exception))
