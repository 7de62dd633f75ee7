"""Which test functions check something: by an assertion, or by calling a function of ours that does."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from tests.support.repository import functions_in, tree_of

_CHECKS_OF_LIBRARIES = ("raises", "warns", "assert_")


def functions_that_assert(paths: Iterable[Path]) -> set[tuple[Path, str]]:
    """Functions, by file and name, that assert themselves or through functions of these files."""
    functions = [(path, function) for path in paths for function in functions_in(tree_of(path))]
    asserting = {function.name for _, function in functions if _asserts(function)}
    size = -1
    while size != len(asserting):
        size = len(asserting)
        asserting |= {function.name for _, function in functions if _calls(function) & asserting}
    return {
        (path, function.name)
        for path, function in functions
        if _asserts(function) or _calls(function) & asserting
    }


def _asserts(function: ast.AST) -> bool:
    if any(isinstance(node, ast.Assert) for node in ast.walk(function)):
        return True
    return any(name.startswith(_CHECKS_OF_LIBRARIES) for name in _calls(function))


def _calls(function: ast.AST) -> set[str]:
    called = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    names = {node.id for node in called if isinstance(node, ast.Name)}
    return names | {node.attr for node in called if isinstance(node, ast.Attribute)}
