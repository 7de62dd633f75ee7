"""The thread team under stress, in a process of its own, plain and under the thread sanitiser."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from compiler.codegen.toolchain import FLAGS, MICRO_DIR, find_compiler
from compiler.codegen.toolchain_process import run_compiler

STRESS = Path(__file__).parents[2] / "support" / "team_stress.cpp"


def build(out: Path, *extra: str) -> Path:
    sources = (str(STRESS), str(MICRO_DIR / "team.cpp"))
    run_compiler((*find_compiler().command, *FLAGS, *extra, *sources, "-o", str(out)), timeout_s=120)
    return out


def output_of(program: Path, threads: int, steps: int) -> str:
    arguments = (str(program), str(threads), str(steps))
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("team") / "plain")


@pytest.fixture(scope="module")
def sanitised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("team") / "sanitised", "-g", "-fsanitize=thread")


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_team_keeps_its_promises(plain: Path, threads: int) -> None:
    assert output_of(plain, threads, 2000) == "ok\n"


def test_more_threads_than_cores_still_finish(plain: Path) -> None:
    assert output_of(plain, 8, 50) == "ok\n"


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_thread_sanitiser_finds_no_race(sanitised: Path, threads: int) -> None:
    assert output_of(sanitised, threads, 300) == "ok\n"
