"""Which line of a model asked for a node: the innermost one outside this package."""

from __future__ import annotations

import sys

_HERE = __name__.rpartition(".")[0]
_DEEPEST = 32


def calling_line() -> str:
    """`module:line` of the nearest caller outside the frontend: the same on every machine, unlike a path."""
    frame = sys._getframe(1)
    for _ in range(_DEEPEST):
        module = str(frame.f_globals.get("__name__", ""))
        if module != _HERE and not module.startswith(_HERE + "."):
            return f"{module}:{frame.f_lineno}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return ""
