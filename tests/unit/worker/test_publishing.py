"""Builds that make a compile unnecessary: found while they are whole, dropped when they are not."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.blobs import DiskBlobs
from worker.publishing import BuildFacts, PublishedBuild, find_build, publish_build
from worker.workspace import workspace

KEY = "k" * 64


@pytest.fixture
def blobs(tmp_path: Path) -> DiskBlobs:
    return DiskBlobs(tmp_path / "blobs")


@pytest.fixture
def published(blobs: DiskBlobs, tmp_path: Path) -> PublishedBuild:
    return publish(blobs, tmp_path, "job_1-1")


def publish(blobs: DiskBlobs, home: Path, attempt: str) -> PublishedBuild:
    with workspace(home / "work", attempt, 1) as space:
        for name in ("artifact/kernels.so", "tokenizer/tokenizer.json"):
            path = space.out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{name} of {attempt}")
        facts = BuildFacts("job_1", 7, {"weights_bytes": 1})
        return publish_build(blobs, "ten_1", KEY, attempt, space, facts)


def test_a_whole_build_is_found(blobs: DiskBlobs, published: PublishedBuild) -> None:
    found = find_build(blobs, "ten_1", KEY)
    assert found is not None
    assert (found.build, found.facts, found.is_own) == (published.build, published.facts, False)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])


@pytest.mark.pitfall("C28")
@pytest.mark.parametrize("damage", [truncate, flip, Path.unlink])
def test_a_build_that_lost_bytes_makes_room_for_a_new_one(
    blobs: DiskBlobs, published: PublishedBuild, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    damage(blobs.path(published.build.artifact_prefix) / "kernels.so")
    assert find_build(blobs, "ten_1", KEY) is None
    again = publish(blobs, tmp_path, "job_2-1")
    found = find_build(blobs, "ten_1", KEY)
    assert again.is_own
    assert found is not None
    assert found.build == again.build


@pytest.mark.pitfall("C28")
@pytest.mark.parametrize(
    "text", [b"{", b"[]", b'{"files": [], "prefix": "a"}', b'{"files": 3, "prefix": "../x"}']
)
def test_a_pointer_that_was_damaged_makes_room_for_a_new_build(
    blobs: DiskBlobs, published: PublishedBuild, tmp_path: Path, text: bytes
) -> None:
    blobs.put(f"artifacts/ten_1/{KEY}/publication.json", [text])
    assert find_build(blobs, "ten_1", KEY) is None
    assert publish(blobs, tmp_path, "job_2-1").is_own


def test_a_build_says_what_the_files_are_that_no_manifest_lists(
    blobs: DiskBlobs, published: PublishedBuild
) -> None:
    with blobs.open(f"{published.build.tokenizer_prefix}/tokenizer.json") as stored:
        content = stored.read()
    expected = ("tokenizer", "tokenizer.json", len(content), hashlib.sha256(content).hexdigest())
    assert published.build.info["files"] == [expected]
