"""The command as a process: exit codes, streams, and what it imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def candela(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("CANDELA_")}
    env |= {"CANDELA_DATA_DIR": str(home), "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, "-m", "candela.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=env,
        check=False,
    )


def test_help_lists_every_command_and_exits_0(tmp_path: Path) -> None:
    done = candela("--help", home=tmp_path)
    assert done.returncode == 0
    assert all(f" {name} " in done.stdout for name in ("up", "model", "deploy", "chat", "bench"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("deploy",),
        ("deploy", "x", "--idle", "soon"),
        ("deploy", "x", "--min", "3", "--max", "2"),
    ],
)
def test_misuse_exits_2_and_says_so_on_stderr(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = candela(*arguments, home=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Usage" in done.stderr


def test_a_known_error_is_one_line_and_exits_1(tmp_path: Path) -> None:
    done = candela("model", "list", home=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: no platform is known here")
    assert done.stderr.count("\n") == 1


def test_with_json_a_known_error_is_a_json_line(tmp_path: Path) -> None:
    done = candela("usage", "--json", home=tmp_path)
    assert done.returncode == 1
    assert json.loads(done.stderr)["error"]["code"] == "not_configured"


def test_no_platform_there_is_an_answer_not_an_error_for_down(tmp_path: Path) -> None:
    done = candela("down", "--json", "--data-dir", str(tmp_path / "none"), home=tmp_path)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"outcome": "not_running"})


def test_status_exits_1_when_nothing_runs(tmp_path: Path) -> None:
    done = candela("status", "--json", "--data-dir", str(tmp_path / "none"), home=tmp_path)
    assert done.returncode == 1
    assert json.loads(done.stdout)["is_running"] is False


def test_the_command_line_starts_without_the_heavy_libraries() -> None:
    heavy = ("httpx", "openai", "numpy", "torch", "sqlalchemy", "fastapi", "celery", "egglog", "pydantic")
    code = f"import sys, candela.cli.main; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
