"""The search compiler: a library of its own. Names load on first use, so that the runtime stays small."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler.errors import CompilerError

__all__ = ["CompilerError"]

_HOME = {"CompilerError": "compiler.errors"}


def __getattr__(name: str) -> object:
    """Import the module that owns `name`, once (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value
