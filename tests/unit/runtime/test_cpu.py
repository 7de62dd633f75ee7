"""Features, and the level that they allow."""

from __future__ import annotations

import re

import pytest

from compiler.codegen.toolchain import MICRO_DIR
from compiler.errors import CompilerError
from compiler.runtime.cpu import (
    LEVELS,
    Feature,
    UnsupportedCpu,
    best_level,
    features_in,
    host_features,
    level_named,
    usable_cores,
)

V4_FLAGS = "fpu sse4_2 avx avx2 fma f16c bmi2 avx512f avx512bw avx512dq avx512vl avx512cd"


def cpuinfo(flags: str) -> str:
    return f"processor\t: 0\nmodel name\t: some CPU\nflags\t\t: {flags}\n\nprocessor\t: 1\nflags\t\t: none\n"


def test_flags_of_the_first_processor_become_features() -> None:
    assert features_in(cpuinfo("fpu avx avx2 unheard_of")) == Feature.AVX | Feature.AVX2


def test_no_flags_are_no_features() -> None:
    assert features_in("Processor: ARMv8\n") == Feature(0)


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        ("fpu sse2", "portable"),
        ("sse4_2 avx avx2 fma f16c bmi2", "x86-64-v3"),
        (V4_FLAGS, "x86-64-v4"),
        (V4_FLAGS + " amx_tile", "x86-64-v4"),
        (V4_FLAGS + " avx512_bf16 avx512_vnni amx_tile amx_bf16", "x86-64-v4-amx"),
    ],
)
def test_the_best_level_is_the_last_that_runs(flags: str, level: str) -> None:
    assert best_level(features_in(cpuinfo(flags))).name == level


def test_only_levels_on_offer_are_chosen() -> None:
    assert best_level(features_in(cpuinfo(V4_FLAGS)), {"portable", "x86-64-v4-amx"}).name == "portable"


def test_no_usable_level_is_refused_with_the_offer() -> None:
    with pytest.raises(UnsupportedCpu, match="x86-64-v4"):
        best_level(Feature(0), {"x86-64-v4"})


def test_levels_are_found_by_name() -> None:
    assert [level_named(level.name) for level in LEVELS] == list(LEVELS)


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(CompilerError, match="pentium"):
        level_named("pentium")


def test_feature_bits_are_those_of_the_abi() -> None:
    text = (MICRO_DIR / "abi.h").read_text()
    bits = {name: 1 << int(shift) for name, shift in re.findall(r"CANDELA_(\w+) = 1u << (\d+)", text)}
    assert bits == {feature.name: feature.value for feature in Feature}


def test_this_machine_runs_some_level() -> None:
    assert best_level(host_features()) in LEVELS


def test_at_least_one_core_is_usable() -> None:
    assert usable_cores() >= 1
