"""The repository as tests about it see it: which files are ours, and what a Python file says."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("api", "batching", "candela", "common", "compiler", "scheduler", "storage", "worker")
_FOLDERS = (*PACKAGES, ".ci", "deploy", "docs", "loadtest", "tests")
_SUFFIXES = (".cpp", ".css", ".h", ".html", ".js", ".mako", ".md", ".py", ".sh", ".toml", ".yaml", ".yml")
_BARE_NAMES = ("Makefile", "run", ".gitignore", ".dockerignore")


@cache
def written_files() -> tuple[Path, ...]:
    """Every file that a person wrote: source, pages, settings; not data, not the license."""
    found = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in _FOLDERS:
        found += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    return tuple(sorted(path for path in found if _is_written(path)))


def python_files(*folders: str) -> tuple[Path, ...]:
    """The Python files below these folders; by default all of ours."""
    wanted = tuple(ROOT / folder for folder in folders) or (ROOT,)
    return tuple(
        path
        for path in written_files()
        if path.suffix == ".py" and any(path.is_relative_to(folder) for folder in wanted)
    )


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def short(path: Path) -> str:
    """The path as a reader of a failure wants it."""
    return path.relative_to(ROOT).as_posix()


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def functions_in(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function of a file, methods and inner ones too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def imported(paths: Iterable[Path]) -> Iterator[str]:
    """Top-level modules that these files import, anywhere in them."""
    for path in paths:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Import):
                yield from (alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.split(".")[0]


def _is_written(path: Path) -> bool:
    if "__pycache__" in path.parts or any(part.endswith(".egg-info") for part in path.parts):
        return False
    return path.suffix in _SUFFIXES or path.name in _BARE_NAMES or path.name.startswith("Dockerfile")
