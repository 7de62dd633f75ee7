from __future__ import annotations

from pathlib import Path

import pytest

from compiler.codegen.toolchain import Toolchain, find_compiler
from tests.support.tiny_program import write_tiny_artifact


@pytest.fixture(scope="session")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    return Toolchain(find_compiler(), tmp_path_factory.mktemp("toolchain"))


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Path:
    place = tmp_path_factory.mktemp("tiny") / "artifact"
    write_tiny_artifact(place, toolchain)
    return place
