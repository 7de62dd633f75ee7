"""A measured search: a journal gives the same bytes again, a killed one goes on, winners are reused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from compiler.pipeline import CompileOptions, CompileReport, Progress, compile_checkpoint
from tests.support.tiny_checkpoints import TINY, write_tiny_checkpoint

OPTIONS = CompileOptions(
    dtype="f32", budget="quick", max_context=96, max_batched_tokens=16, max_sequences=4, threads=2
)
SCRIPT = """
import json, sys
from pathlib import Path
from compiler.pipeline import CompileOptions, compile_checkpoint
told = json.loads(sys.argv[1])
paths = {name: Path(told.pop(name)) for name in ("checkpoint", "out", "journal", "cache_dir")}
options = CompileOptions(**told, journal=paths["journal"], cache_dir=paths["cache_dir"])
compile_checkpoint(paths["checkpoint"], paths["out"], options)
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("hf"), "gqa")


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def first(checkpoint: Path, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an artifact, and the journal of its compile, which was killed once on the way."""
    root = tmp_path_factory.mktemp("first")
    running = started(checkpoint, root, cache_dir, hash_seed="1")
    while running.poll() is None and len(lines(root / "journal")) < 60:
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    (root / "at the kill").write_bytes((root / "journal").read_bytes())
    assert started(checkpoint, root, cache_dir, hash_seed="2").wait() == 0
    return root


def started(checkpoint: Path, root: Path, cache_dir: Path, hash_seed: str) -> subprocess.Popen[bytes]:
    names = ("dtype", "budget", "max_context", "max_batched_tokens", "max_sequences", "threads")
    told = {name: getattr(OPTIONS, name) for name in names} | {
        "checkpoint": str(checkpoint),
        "out": str(root / "artifact"),
        "journal": str(root / "journal"),
        "cache_dir": str(cache_dir),
    }
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": hash_seed}
    return subprocess.Popen([sys.executable, "-c", SCRIPT, json.dumps(told)], env=env)


def lines(journal: Path) -> list[dict[str, object]]:
    if not journal.exists():
        return []
    whole = journal.read_bytes()
    return [json.loads(text)["line"] for text in whole[: whole.rfind(b"\n") + 1].splitlines()]


def files(artifact: Path) -> dict[str, bytes]:
    return {str(p.relative_to(artifact)): p.read_bytes() for p in sorted(artifact.rglob("*")) if p.is_file()}


def compiled(checkpoint: Path, out: Path, **changes: object) -> tuple[CompileReport, list[Progress]]:
    said: list[Progress] = []
    return compile_checkpoint(checkpoint, out, replace(OPTIONS, **changes), said.append), said  # type: ignore[arg-type]


def test_a_killed_search_goes_on_without_repeating_what_was_finished(first: Path) -> None:
    before, after = lines(first / "at the kill"), lines(first / "journal")
    assert len(before) >= 60
    assert after[: len(before)] == before
    assert max(Counter(line["key"] for line in after).values()) == 1
    assert {line["kind"] for line in after} >= {"build", "gate", "time", "busy"}


def test_the_same_journal_gives_the_same_bytes_without_measuring(
    first: Path, checkpoint: Path, tmp_path: Path
) -> None:
    """Even with an empty cache of objects."""
    journal = tmp_path / "journal"
    journal.write_bytes((first / "journal").read_bytes())
    compiled(checkpoint, tmp_path / "again", journal=journal, cache_dir=tmp_path / "cache")
    assert lines(journal) == lines(first / "journal")
    assert files(tmp_path / "again") == files(first / "artifact")


def test_what_was_found_is_not_searched_again(
    first: Path, checkpoint: Path, cache_dir: Path, tmp_path: Path
) -> None:
    report, said = compiled(checkpoint, tmp_path / "out", cache_dir=cache_dir)
    told = json.loads((first / "artifact" / "report.json").read_text())
    assert report.seconds < 1 < told["seconds"]
    assert any("0 trials" in p.message for p in said)
    chosen = {n: b for n, b in files(first / "artifact").items() if n.endswith(".so")}
    assert chosen == {n: b for n, b in files(tmp_path / "out").items() if n.endswith(".so")}


def test_equal_definitions_of_another_model_are_not_searched_again(
    first: Path, cache_dir: Path, tmp_path: Path
) -> None:
    """A deeper model has the same layers; its cuts are its own."""
    deeper = write_tiny_checkpoint(tmp_path / "hf", replace(TINY["gqa"], layers=4))
    report, said = compiled(deeper, tmp_path / "out", cache_dir=cache_dir)
    assert any("0 trials" in p.message for p in said)
    assert report.definitions > 20


DAMAGE = (b"", b"{", b"\x00" * 64, b"[" * 9000, b'{"format":1,"key":"x","sha256":"y","body":{}}')


def test_a_damaged_cache_is_searched_past(
    first: Path, checkpoint: Path, cache_dir: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "cache"
    (mine / "search").mkdir(parents=True)
    for number, path in enumerate((cache_dir / "search").iterdir()):
        (mine / "search" / path.name).write_bytes(DAMAGE[number % len(DAMAGE)])
    report, _ = compiled(checkpoint, tmp_path / "out", cache_dir=mine, budget=0.0)
    assert report.candidates >= report.distinct
    assert (tmp_path / "out" / "manifest.json").exists()


def test_seconds_end_a_search_that_has_a_valid_program(checkpoint: Path, tmp_path: Path) -> None:
    report, said = compiled(checkpoint, tmp_path / "out", budget=0.0, cache_dir=tmp_path / "cache")
    assert any("first valid program after" in p.message for p in said)
    assert report.candidates == report.distinct
    assert not any(k["measured_s"] for k in report.kernels)
