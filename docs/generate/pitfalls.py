"""Fills the last column of docs/pitfalls.md from the marks of the tests: `python -m docs.generate.pitfalls`.

Rows are written by hand, in the page. A mark decorates a test: `@pytest.mark.pitfall("S1", "B2")`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).parents[1] / "pitfalls.md"
_TESTS = PAGE.parents[1] / "tests"
_ID = re.compile(r"\| ([A-Z]\d+) \|")
_BETWEEN_CELLS = re.compile(r"(?<!\\)\|")
_WRITTEN_CELLS = 5


def page() -> str:
    """The page as it stands, with its last column made anew."""
    files = marked_files()
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return "".join(f"{_filled(line, files)}\n" for line in lines)


def row_ids() -> tuple[str, ...]:
    """The ids of the rows, in the page's order."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return tuple(match[1] for line in lines if (match := _ID.match(line)))


def marked_files() -> dict[str, tuple[Path, ...]]:
    """By id, the files with a test that is marked with it."""
    found: dict[str, list[Path]] = {}
    for path in sorted(_TESTS.rglob("test_*.py")):
        for name in dict.fromkeys(_ids_in(ast.parse(path.read_text(encoding="utf-8")))):
            found.setdefault(name, []).append(path)
    return {name: tuple(paths) for name, paths in found.items()}


def _ids_in(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.pitfall":
                    yield from (ast.literal_eval(argument) for argument in mark.args)


def _filled(line: str, files: dict[str, tuple[Path, ...]]) -> str:
    match = _ID.match(line)
    if match is None:
        return line
    _, *cells = _BETWEEN_CELLS.split(line)
    tests = ", ".join(_link(path) for path in files.get(match[1], ())) or "open"
    return "|".join(["", *cells[:_WRITTEN_CELLS], f" {tests} |"])


def _link(path: Path) -> str:
    return f"[{path.stem}](../{path.relative_to(PAGE.parents[1]).as_posix()})"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
