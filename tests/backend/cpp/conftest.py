from __future__ import annotations

import pytest

from compiler.codegen.toolchain import Toolchain, find_compiler
from compiler.runtime.cpu import PORTABLE, X86_64_V3, X86_64_V4, best_level, host_features
from tests.support.compiled_kernels import Place
from tests.support.compiled_programs import Library

EMULATED = ("CANDELA_AMX_EMULATED",)


@pytest.fixture(scope="session")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    return Toolchain(find_compiler(), tmp_path_factory.mktemp("kernels"))


@pytest.fixture(scope="session")
def library(toolchain: Toolchain) -> Library:
    """The programs at the best level of this CPU, with all candidates."""
    level = best_level(host_features(), [level.name for level in (PORTABLE, X86_64_V3, X86_64_V4)])
    return Library(toolchain, Place(level), is_thorough=True)


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(PORTABLE, id="portable"),
        pytest.param(X86_64_V3, id="v3", marks=pytest.mark.needs_avx2),
    ],
)
def other_levels(request: pytest.FixtureRequest, toolchain: Toolchain) -> Library:
    """The programs at the lower levels, with one candidate a form."""
    return Library(toolchain, Place(request.param), is_thorough=False)


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(Place(PORTABLE, EMULATED), id="emulated"),
        pytest.param(Place(X86_64_V4, EMULATED), id="emulated-v4", marks=pytest.mark.needs_avx512),
    ],
)
def with_tiles(request: pytest.FixtureRequest, toolchain: Toolchain) -> Library:
    """Programs with matrix tiles, emulated."""
    return Library(toolchain, request.param, is_thorough=True)
