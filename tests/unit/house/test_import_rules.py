"""Who may import whom: the contracts of pyproject.toml hold, and they cover every package."""

from __future__ import annotations

import ast
import subprocess
import sys

from tests.support.repository import PACKAGES, ROOT, imported, pyproject, python_files, tree_of

RULES = pyproject()["tool"]["importlinter"]


def test_every_contract_holds() -> None:
    command = [
        sys.executable,
        "-c",
        "import importlinter.cli as cli; cli.lint_imports_command()",
        "--no-cache",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "0 broken" in done.stdout


def test_the_rules_cover_every_package() -> None:
    assert set(RULES["root_packages"]) == set(PACKAGES)
    layers = next(c for c in RULES["contracts"] if c["name"] == "Layers")["layers"]
    named = {name.strip() for layer in layers for name in layer.split("|")}
    assert named == set(PACKAGES)


def test_checkpoint_headers_are_read_with_the_standard_library_alone() -> None:
    modules = set(imported(python_files("compiler/checkpoint")))
    assert modules - sys.stdlib_module_names == {"compiler"}


def test_no_product_code_imports_tests_or_load_tests() -> None:
    assert set(imported(python_files(*PACKAGES))) & {"tests", "loadtest", "docs"} == set()


def test_relative_imports_stay_within_their_package() -> None:
    """`from ..` would hide an import from a reader who looks for a package's name."""
    far = [
        str(path)
        for path in python_files(*PACKAGES)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.level > 1
    ]
    assert far == []
