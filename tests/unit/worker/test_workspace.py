"""Attempts' directories: empty at the start, gone at the end, swept after a kill."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from worker.workspace import drop_old, sweep, workspace


def test_an_attempt_gets_empty_directories_and_leaves_none(tmp_path: Path) -> None:
    with workspace(tmp_path, "job_1", 1) as space:
        assert (list(space.checkpoint.iterdir()), list(space.out.iterdir())) == ([], [])
        (space.out / "weights").write_bytes(b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_attempt_leaves_nothing_either(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), workspace(tmp_path, "job_1", 1):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_directory_in_use_is_not_swept(tmp_path: Path) -> None:
    with workspace(tmp_path, "job_1", 1) as space:
        assert sweep(tmp_path) == ()
        assert space.checkpoint.is_dir()


def test_what_a_killed_worker_left_is_swept(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from worker.workspace import workspace\n"
        "with workspace(Path(sys.argv[1]), 'job_1', 4): os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert sweep(tmp_path) == ("job_1-4",)
    assert list(tmp_path.iterdir()) == []


def test_only_the_newest_files_are_kept(tmp_path: Path) -> None:
    for age, name in enumerate("abc"):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    drop_old(tmp_path, 2)
    assert {p.name for p in tmp_path.iterdir()} == {"a", "b"}
    drop_old(tmp_path / "absent", 2)
    assert not (tmp_path / "absent").exists()
