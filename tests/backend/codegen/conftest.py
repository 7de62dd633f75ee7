from __future__ import annotations

import pytest

from compiler.codegen.toolchain import Toolchain, find_compiler
from compiler.runtime.cpu import PORTABLE, X86_64_V3, X86_64_V4, X86_64_V4_AMX
from tests.support.micro_kernels import MicroKernels

AMX_EMULATED = "CANDELA_AMX_EMULATED"


@pytest.fixture(scope="session")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    return Toolchain(find_compiler(), tmp_path_factory.mktemp("toolchain"))


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(PORTABLE, id="portable"),
        pytest.param(X86_64_V3, id="v3", marks=pytest.mark.needs_avx2),
        pytest.param(X86_64_V4, id="v4", marks=pytest.mark.needs_avx512),
        pytest.param(X86_64_V4_AMX, id="amx", marks=pytest.mark.needs_amx),
    ],
)
def kernels(request: pytest.FixtureRequest, toolchain: Toolchain) -> MicroKernels:
    """The micro-kernels of each level that this CPU runs."""
    return MicroKernels(toolchain, request.param)


@pytest.fixture(
    scope="session",
    params=[
        pytest.param((PORTABLE, (AMX_EMULATED,)), id="emulated"),
        pytest.param((X86_64_V4, (AMX_EMULATED,)), id="emulated-v4", marks=pytest.mark.needs_avx512),
        pytest.param((X86_64_V4_AMX, ()), id="amx", marks=pytest.mark.needs_amx),
    ],
)
def amx_kernels(request: pytest.FixtureRequest, toolchain: Toolchain) -> MicroKernels:
    """The AMX kernels: on emulated tiles everywhere, on the hardware where it is."""
    level, defines = request.param
    return MicroKernels(toolchain, level, defines)
