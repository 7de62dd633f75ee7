"""The compiler as a tool of its own: compile, run, bench, with no server anywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tiny_checkpoints import write_tiny_checkpoint


def candela(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "candela.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkpoint = write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), "gqa")
    out = tmp_path_factory.mktemp("out")
    done = candela("compile", str(checkpoint), "-o", str(out), "--budget", "none", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["target"] == "cpu"
    return out


def test_compiling_writes_an_artifact_and_a_tokenizer(compiled: Path) -> None:
    assert (compiled / "artifact" / "manifest.json").is_file()
    assert (compiled / "tokenizer" / "tokenizer.json").is_file()


def test_greedy_text_is_the_same_each_time(compiled: Path) -> None:
    runs = [
        candela("run", str(compiled), "--prompt", "Once upon", "--max-tokens", "8", "--json") for _ in "ab"
    ]
    first, second = (json.loads(run.stdout) for run in runs)
    assert first["text"] == second["text"]
    assert first["completion_tokens"] == 8


def test_a_chat_has_its_template_around_it(compiled: Path) -> None:
    plain, chat = (
        json.loads(candela("run", str(compiled), "-p", "Hi", "--max-tokens", "1", "--json", *extra).stdout)
        for extra in ((), ("--chat",))
    )
    assert chat["prompt_tokens"] > plain["prompt_tokens"]


def test_bench_prints_a_row_for_each_workload_that_fits(compiled: Path) -> None:
    done = candela("bench", str(compiled), "--repeats", "1", "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert "start_to_first_token_s" in rows[0]
    assert [row["sequences"] for row in rows[1:]] == [1, 8, 32]
    assert all(row["out_tok_s"] > 0 and "host_ms_between_steps" in row for row in rows[1:])


def test_the_receipt_of_a_compile_holds(compiled: Path) -> None:
    done = candela("verify", str(compiled), "--json")
    assert done.returncode == 0, done.stderr
    assert [(f["check"], f["is_ok"]) for f in json.loads(done.stdout)] == [("files", True), ("kernels", True)]


def test_a_folder_that_is_no_artifact_is_one_line(tmp_path: Path) -> None:
    done = candela("run", str(tmp_path), "--prompt", "Hi")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_a_checkpoint_that_cannot_be_compiled_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 16)
    done = candela("compile", str(tmp_path), "-o", str(tmp_path / "out"))
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
