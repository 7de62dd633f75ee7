"""Finding a compiler, building through the cache, and stopping a build."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path

import pytest

from compiler.codegen.toolchain import CompilerKind, CxxCompiler, Toolchain, find_compiler
from compiler.codegen.toolchain_errors import (
    CompileCancelled,
    CompileFailed,
    CompilerNotFound,
    CompileTimeout,
    ToolchainError,
)
from compiler.codegen.toolchain_process import run_compiler
from compiler.runtime.cpu import LEVELS, PORTABLE, Level
from compiler.runtime.team import KernelLibrary

KERNEL = '#include "kernels.h"\nCANDELA_KERNEL(k_answer) { *(float*)bufs[0] = c_exp2f(3.0f); }\n'


def test_a_build_is_found_again(toolchain: Toolchain) -> None:
    first = toolchain.shared_object(KERNEL, PORTABLE)
    built_at = first.stat().st_mtime_ns
    assert toolchain.shared_object(KERNEL, PORTABLE) == first
    assert first.stat().st_mtime_ns == built_at


def test_source_level_and_defines_each_name_another_build(toolchain: Toolchain) -> None:
    builds = {
        toolchain.shared_object(KERNEL, PORTABLE),
        toolchain.shared_object(KERNEL + "\n", PORTABLE),
        toolchain.shared_object(KERNEL, LEVELS[1]),
        toolchain.shared_object(KERNEL, PORTABLE, defines=("SOMETHING",)),
        toolchain.shared_object(KERNEL, PORTABLE, with_team=False),
    }
    assert len(builds) == 5


def test_two_caches_build_the_same_bytes(toolchain: Toolchain, tmp_path: Path) -> None:
    other = Toolchain(toolchain.compiler, tmp_path / "other")
    assert (
        other.shared_object(KERNEL, PORTABLE).read_bytes()
        == toolchain.shared_object(KERNEL, PORTABLE).read_bytes()
    )


def test_several_units_become_one_object(toolchain: Toolchain) -> None:
    second = KERNEL.replace("k_answer", "k_other")
    path = toolchain.shared_object([KERNEL, second], PORTABLE, with_team=False)
    library = ctypes.CDLL(str(path))
    assert library.k_answer
    assert library.k_other


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_every_level_builds_and_says_what_it_needs(toolchain: Toolchain, level: Level) -> None:
    library = ctypes.CDLL(str(toolchain.shared_object(KERNEL, level)))
    library.candela_required_features.restype = ctypes.c_uint64
    assert library.candela_required_features() == level.required


def test_a_built_library_opens(toolchain: Toolchain) -> None:
    library = KernelLibrary(toolchain.shared_object(KERNEL, PORTABLE))
    assert library.address("k_answer") > 0


def test_what_the_compiler_refuses_is_shown_but_not_at_length(toolchain: Toolchain) -> None:
    with pytest.raises(CompileFailed, match="not_declared") as caught:
        toolchain.shared_object("int f() { return not_declared; }\n" * 500, PORTABLE)
    assert len(str(caught.value)) < 3000
    assert len(caught.value.output) > len(str(caught.value))


@pytest.mark.pitfall("C31")
def test_a_build_that_takes_too_long_is_killed(toolchain: Toolchain, tmp_path: Path) -> None:
    hasty = Toolchain(toolchain.compiler, tmp_path, timeout_s=0.01)
    with pytest.raises(CompileTimeout):
        hasty.shared_object(KERNEL, PORTABLE)
    assert not list(tmp_path.rglob("*.so"))


def test_a_build_stops_on_request(toolchain: Toolchain, tmp_path: Path) -> None:
    with pytest.raises(CompileCancelled):
        Toolchain(toolchain.compiler, tmp_path).shared_object(KERNEL, PORTABLE, should_stop=lambda: True)


@pytest.mark.pitfall("C31")
def test_a_killed_childs_children_are_gone_too(tmp_path: Path) -> None:
    survivor = tmp_path / "survivor"
    script = f"(sleep 1.5; touch {survivor}) & sleep 30"
    with pytest.raises(CompileTimeout):
        run_compiler(("sh", "-c", script), timeout_s=0.2)
    time.sleep(2)
    assert not survivor.exists()


def test_the_preferred_compiler_is_taken() -> None:
    found = find_compiler()
    assert find_compiler(f"env {found.command[0]}").command == ("env", found.command[0])


def test_a_preferred_compiler_that_fails_is_passed_over() -> None:
    assert find_compiler("/nonexistent/c++").version == find_compiler().version


def test_no_compiler_at_all_is_an_error_that_says_what_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CompilerNotFound, match="my-compiler") as caught:
        find_compiler("my-compiler")
    assert isinstance(caught.value, ToolchainError)


def test_zig_is_told_levels_in_its_own_spelling(tmp_path: Path) -> None:
    script = tmp_path / "zig"
    script.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nfor last; do :; done\ntouch "$last"\n')
    script.chmod(0o755)
    zig = Toolchain(CxxCompiler((str(script),), CompilerKind.ZIG, "zig"), tmp_path / "cache")
    zig.shared_object(KERNEL, LEVELS[1])
    assert "-march=x86_64_v3" in (tmp_path / "calls").read_text()
