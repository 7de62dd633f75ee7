"""GCC must turn plain loops over the mathematics into vector code of the level's full width."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler.codegen.toolchain import FLAGS, CxxCompiler, find_compiler
from compiler.codegen.toolchain_process import run_compiler
from compiler.runtime.cpu import LEVELS, Level

FUNCTIONS = ["exp2f", "log2f", "sinf", "f32_to_bf16", "bf16_to_f32", "f32_to_f16", "f16_to_f32"]
WIDTH_BYTES = {"portable": 16, "x86-64-v3": 32, "x86-64-v4": 64, "x86-64-v4-amx": 64}


@pytest.fixture(scope="module")
def gcc() -> CxxCompiler:
    return find_compiler()


@pytest.mark.needs_gcc
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_a_loop_over_it_is_vectorised(gcc: CxxCompiler, tmp_path: Path, level: Level, function: str) -> None:
    result = "uint16_t" if function.endswith("16") else "float"
    argument = (
        "float" if function.startswith("f32") or function.endswith("2f") or "sin" in function else "uint16_t"
    )
    source = tmp_path / "loop.cpp"
    source.write_text(
        f'#include "math.h"\nvoid map({result}* __restrict y, const {argument}* __restrict x, long n) '
        f"{{ for (long i = 0; i < n; i++) y[i] = c_{function}(x[i]); }}\n"
    )
    flags = (*FLAGS, *level.flags, "-fopt-info-vec-optimized")
    said = run_compiler(
        (*gcc.command, *flags, "-c", str(source), "-o", str(tmp_path / "loop.o")), timeout_s=60
    )
    assert f"loop vectorized using {WIDTH_BYTES[level.name]} byte vectors" in said
