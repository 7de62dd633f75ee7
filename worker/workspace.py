"""Directories in which attempts work: one each, locked while its worker lives, swept when it does not."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class Workspace:
    """`checkpoint` holds the upload's files; the compile fills `out`."""

    root: Path

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def out(self) -> Path:
        return self.root / "out"


@contextmanager
def workspace(work_dir: Path, job_id: str, token: int) -> Iterator[Workspace]:
    """An empty directory for this attempt, removed at the end."""
    space = Workspace(work_dir / f"{job_id}-{token}")
    unlocked = work_dir / f".{job_id}-{token}"  # a sweep passes over it until it is locked
    for directory in (space.root, unlocked):
        shutil.rmtree(directory, ignore_errors=True)
    unlocked.mkdir(parents=True)
    lock = _try_lock(unlocked)
    assert lock is not None, "a new directory is locked by nobody"
    unlocked.rename(space.root)
    try:
        space.checkpoint.mkdir()
        space.out.mkdir()
        yield space
    finally:
        shutil.rmtree(space.root, ignore_errors=True)
        os.close(lock)


def sweep(work_dir: Path) -> tuple[str, ...]:
    """Remove what killed workers left behind (the kernel dropped their locks); the names removed."""
    removed = []
    for directory in sorted(work_dir.glob("[!.]*-*")):
        lock = _try_lock(directory)
        if lock is not None:
            shutil.rmtree(directory, ignore_errors=True)
            os.close(lock)
            removed.append(directory.name)
    return tuple(removed)


def drop_old(directory: Path, kept: int) -> None:
    """Remove all but the newest files of a directory: journals of jobs that nobody works on any more."""
    files = sorted((p for p in directory.glob("*") if p.is_file()), key=lambda p: p.stat().st_mtime)
    for path in files[: max(len(files) - kept, 0)]:
        path.unlink(missing_ok=True)


def _try_lock(directory: Path) -> int | None:
    descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
