"""The rules of CONTRIBUTING.md that a machine can check. Each test lists every place that breaks its rule."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.asserting import functions_that_assert
from tests.support.repository import PACKAGES, ROOT, functions_in, python_files, short, tree_of, written_files

MOST_LINES = 400
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError")
NOT_RUN = re.compile(
    r"\b(pytest|mark|unittest)\.(skip|skipif|xfail|importorskip|skipUnless|skipTest)\b|\bimportorskip\b"
)
OUTSIDE = re.compile(
    r"(?<![\w.-])(\.\./)?shared/"  # a folder beside the repository
    r"|(?<![\w.])/(work|root|home)/\w"  # a path of one machine
    r"|/tmp/models"
    r"|pypi\.org|pythonhosted\.org|registry\.npmjs\.org|deb\.debian\.org|proxy\.golang\.org"
)
VAGUE_NAMES = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}
LAZY_FACES = {"candela/__init__.py", "compiler/__init__.py"}
READS_ENVIRONMENT = {
    "candela/cli/checks.py",  # looks at this machine; CXX names the compiler
    "candela/cli/compiling.py",  # CXX, too
    "candela/cli/platform.py",  # hands it to the processes that it starts
    "candela/demo.py",
    "candela/client/config.py",  # CANDELA_URL and CANDELA_API_KEY, for whoever uses the client
    "worker/compile_child.py",  # a process of its own; CXX
    "api/prompt/child.py",  # a process of its own, sets what a library reads
}
THIS = Path(__file__).resolve()


def lines_that_match(pattern: re.Pattern[str], paths: tuple[Path, ...]) -> list[str]:
    return [
        f"{short(path)}:{number}: {line.strip()}"
        for path in paths
        if path != THIS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {short(path): len(path.read_text(encoding="utf-8").splitlines()) for path in written_files()}
    assert {path: length for path, length in lengths.items() if length > MOST_LINES} == {}


def test_nothing_is_left_unfinished() -> None:
    assert lines_that_match(UNFINISHED, written_files()) == []


def test_no_test_is_skipped_or_expected_to_fail() -> None:
    assert lines_that_match(NOT_RUN, python_files("tests")) == []


def test_every_test_asserts() -> None:
    tests = {
        f"{short(path)}::{function.name}": (path, function)
        for path in python_files("tests")
        if path.name.startswith("test_")
        for function in functions_in(tree_of(path))
        if function.name.startswith("test_")
    }
    asserting = functions_that_assert(python_files("tests"))
    assert [name for name, (path, function) in tests.items() if (path, function.name) not in asserting] == []


def test_test_files_have_names_of_their_own() -> None:
    names = [path.name for path in python_files("tests") if path.name.startswith("test_")]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []


def test_nothing_points_outside_the_repository() -> None:
    assert lines_that_match(OUTSIDE, written_files()) == []


def test_every_folder_of_code_is_a_package() -> None:
    folders = {path.parent for path in python_files(*PACKAGES)}
    assert sorted(short(folder) for folder in folders if not (folder / "__init__.py").exists()) == []


def test_a_package_file_is_a_face_only() -> None:
    faces = [path for path in python_files(*PACKAGES) if path.name == "__init__.py"]
    assert [
        f"{short(path)}:{statement.lineno}"
        for path in faces
        for statement in tree_of(path).body
        if short(path) not in LAZY_FACES and not _belongs_in_a_face(statement)
    ] == []


def test_every_module_says_what_it_owns() -> None:
    files = [path for path in python_files() if not path.name.startswith("conftest")]
    assert [short(path) for path in files if not ast.get_docstring(tree_of(path))] == []


def test_no_module_has_a_vague_name() -> None:
    names = [path for path in python_files(*PACKAGES, "loadtest") if path.stem in VAGUE_NAMES]
    assert [short(path) for path in names] == []


def test_the_environment_is_read_by_main_modules_only() -> None:
    found = lines_that_match(re.compile(r"\bos\.(environ|getenv)\b"), python_files(*PACKAGES))
    files = {line.split(":")[0] for line in found}
    assert {path for path in files if Path(path).name != "main.py"} - READS_ENVIRONMENT == set()


def test_http_errors_are_raised_by_the_gateway_only() -> None:
    others = tuple(path for path in python_files(*PACKAGES) if not path.is_relative_to(ROOT / "api"))
    assert lines_that_match(re.compile(r"\bHTTPException\b"), others) == []


@pytest.mark.pitfall("S27", "U22")
def test_no_code_unpickles() -> None:
    pattern = re.compile(r"^\s*(import|from) (pickle|dill|cloudpickle|joblib|shelve|marshal)\b")
    assert lines_that_match(pattern, python_files(*PACKAGES)) == []


@pytest.mark.pitfall("U18")
def test_no_code_unpacks_an_archive() -> None:
    pattern = re.compile(r"\b(tarfile|extractall|unpack_archive)\b")
    assert lines_that_match(pattern, python_files(*PACKAGES)) == []


def _belongs_in_a_face(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return True
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Assign) and _is_named(statement.targets[0], "__all__")


def _is_named(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Name) and target.id == name
