"""Functions of the compiler with one guard dropped or weakened, in place, for as long as a `with` lasts.

A guard is an expression of the function's source. Its code is compiled with another expression in that place
and put into the very function object, so that every caller meets the mutant.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType

from compiler.egraph.rewrites import REWRITES
from compiler.egraph.rule import Check, Rewrite


def function_at(where: str) -> FunctionType:
    """The function that `module:Class.function` names."""
    module, _, path = where.partition(":")
    found: object = importlib.import_module(module)
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    assert isinstance(found, FunctionType), where
    return found


def replacements(check: Check) -> list[str]:
    """What is put in a guard's place, one mutant each."""
    return [check.dropped, *check.weaker]


def mutants() -> Iterator[tuple[Rewrite, str, Check, str]]:
    """Every mutant: its rewrite, the function, the guard, and what takes its place."""
    for rewrite in REWRITES:
        for where, check in rewrite.guarded():
            for text in replacements(check):
                yield rewrite, where, check, text


@contextmanager
def mutated(where: str, guard: str, by: str) -> Iterator[None]:
    """`guard` replaced by the expression `by` in the function at `where`."""
    wanted = ast.unparse(ast.parse(guard, mode="eval").body)
    replacement = ast.parse(by, mode="eval").body

    class Edit(ast.NodeTransformer):
        count = 0

        def visit(self, node: ast.AST) -> ast.AST:
            is_read = not isinstance(getattr(node, "ctx", None), ast.Store)
            if isinstance(node, ast.expr) and is_read and ast.unparse(node) == wanted:
                Edit.count += 1
                return ast.copy_location(replacement, node)
            return self.generic_visit(node)

    with _recompiled(where, Edit()):
        assert Edit.count, f"{where} has no guard {guard!r}"
        yield


@contextmanager
def watched(where: str, statement: str, reached: Callable[[], None]) -> Iterator[None]:
    """`reached` is called each time the function at `where` comes to `statement`."""

    class Edit(ast.NodeTransformer):
        count = 0

        def visit(self, node: ast.AST) -> ast.AST | list[ast.AST]:
            node = self.generic_visit(node)
            if isinstance(node, ast.stmt) and ast.unparse(node) == statement:
                Edit.count += 1
                call = ast.parse("_reached()").body[0]
                return [ast.copy_location(call, node), node]
            return node

    spaces = function_at(where).__globals__
    with _recompiled(where, Edit()):
        assert Edit.count, f"{where} has no statement {statement!r}"
        spaces["_reached"] = reached
        try:
            yield
        finally:
            del spaces["_reached"]


@contextmanager
def _recompiled(where: str, edit: ast.NodeTransformer) -> Iterator[None]:
    function = function_at(where)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    module = compile(ast.fix_missing_locations(edit.visit(tree)), where, "exec", dont_inherit=True)
    code = next(c for c in module.co_consts if isinstance(c, CodeType) and c.co_name == function.__name__)
    before = function.__code__
    function.__code__ = code
    try:
        yield
    finally:
        function.__code__ = before
