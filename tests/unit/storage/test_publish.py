"""Publishing builds: one per key, whole or not at all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from storage.blobs import DiskBlobs, find_publication, publish


@pytest.fixture
def blobs(tmp_path):
    return DiskBlobs(tmp_path / "blobs")


def build(tmp_path, text):
    """Local directories of a finished build, every file of which holds `text`."""
    top = tmp_path / f"out-{text}"
    for name in ("artifact/kernels/k0.so", "artifact/manifest.json", "tokenizer/tokenizer.json"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    return {"artifact": top / "artifact", "tokenizer": top / "tokenizer"}


def texts(blobs, prefix):
    return {blobs.path(key).read_text() for key in blobs.keys(prefix)}


def test_a_build_is_published_under_its_key(blobs, tmp_path):
    made = publish(blobs, "ten_1", "b1", "job_1-1", build(tmp_path, "one"))
    assert made.is_winner
    assert made.directory("artifact") == "artifacts/ten_1/b1/job_1-1/artifact"
    assert blobs.keys(made.directory("artifact")) == (
        "artifacts/ten_1/b1/job_1-1/artifact/kernels/k0.so",
        "artifacts/ten_1/b1/job_1-1/artifact/manifest.json",
    )
    assert {f.key for f in made.files} == set(blobs.keys(made.prefix))


def test_a_published_build_can_be_found(blobs, tmp_path):
    made = publish(blobs, "ten_1", "b1", "job_1-1", build(tmp_path, "one"))
    found = find_publication(blobs, "ten_1", "b1")
    assert (found.prefix, found.files) == (made.prefix, made.files)


def test_there_is_no_build_before_it_is_whole(blobs, tmp_path):
    publish(blobs, "ten_1", "b1", "job_1-1", build(tmp_path, "one"))
    assert find_publication(blobs, "ten_1", "b2") is None
    assert find_publication(blobs, "ten_2", "b1") is None


def test_a_second_publication_reads_the_first(blobs, tmp_path):
    first = publish(blobs, "ten_1", "b1", "job_1-1", build(tmp_path, "one"))
    second = publish(blobs, "ten_1", "b1", "job_1-2", build(tmp_path, "two"))
    assert (second.prefix, second.is_winner) == (first.prefix, False)
    assert texts(blobs, second.prefix) == {"one"}


@pytest.mark.pitfall("U1", "U17")
def test_of_racing_publications_one_stays_whole_and_the_rest_is_deleted(blobs, tmp_path):
    builds = [build(tmp_path, f"{n}") for n in range(8)]

    def run(n: int) -> str:
        return publish(blobs, "ten_1", "b1", f"job_1-{n}", builds[n]).prefix

    with ThreadPoolExecutor(8) as pool:
        prefixes = set(pool.map(run, range(8)))
    (prefix,) = prefixes
    assert len(texts(blobs, prefix)) == 1
    assert len(blobs.keys("artifacts/ten_1/b1")) == len(blobs.keys(prefix)) + 1


def test_an_attempt_that_died_half_way_does_not_hinder_its_repeat(blobs, tmp_path):
    blobs.put("artifacts/ten_1/b1/job_1-1/artifact/kernels/left-over.so", [b"half"])
    made = publish(blobs, "ten_1", "b1", "job_1-1", build(tmp_path, "whole"))
    assert texts(blobs, made.prefix) == {"whole"}


def test_a_deleted_build_is_published_anew(blobs, tmp_path):
    publish(blobs, "ten_1", "b1", "job_1-1", build(tmp_path, "one"))
    blobs.delete_prefix("artifacts/ten_1/b1/")
    assert publish(blobs, "ten_1", "b1", "job_2-1", build(tmp_path, "two")).is_winner
