"""The wheel: all of our code and its data files, nothing else, and it runs without the repository."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.repository import PACKAGES, ROOT, pyproject, python_files
from tests.support.servers import short_directory

DATA = ("*.h", "*.cpp", "*.html", "*.css", "*.js", "*.mako")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, since building leaves files beside the source."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for other in ("tests", "loadtest", "docs"):
        (source / other).mkdir()
        (source / other / "__init__.py").touch()
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_it_holds_our_packages_and_nothing_else(wheel: Path, names: set[str]) -> None:
    version = pyproject()["project"]["version"]
    assert {name.split("/")[0] for name in names} == {*PACKAGES, f"candela-{version}.dist-info"}


def test_it_holds_every_module(names: set[str]) -> None:
    modules = {path.relative_to(ROOT).as_posix() for path in python_files(*PACKAGES)}
    assert modules - names == set()


def test_it_holds_every_data_file(names: set[str]) -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for pattern in DATA
        for path in (ROOT / package).rglob(pattern)
    }
    assert found - names == set()


def test_it_holds_the_license(names: set[str]) -> None:
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_command_runs_from_it(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    script = "import candela; print(candela.__file__); from candela.cli.main import run; run()"
    with short_directory() as data_dir:
        done = subprocess.run(
            [
                sys.executable,
                "-P",
                "-c",
                script,
                "doctor",
                "--json",
                "--port",
                "0",
                "--data-dir",
                str(data_dir),
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)},
        )
    assert done.stdout.startswith(str(tmp_path)), done.stdout + done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
