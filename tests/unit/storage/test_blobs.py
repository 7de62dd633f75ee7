"""Blobs on disk: atomic, hashed, exclusive, inside their root. What S3 will have to do too."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import ChecksumMismatch
from storage.blobs import BlobStore, DiskBlobs, build_prefix, check_key, file_key, part_key
from storage.errors import BadBlobKey, BlobExists, BlobNotFound


@pytest.fixture
def blobs(tmp_path) -> BlobStore:
    return DiskBlobs(tmp_path / "blobs", secret="s3cret")


def read(blobs, key):
    with blobs.open(key) as file:
        return file.read()


def sha(data):
    return hashlib.sha256(data).hexdigest()


def temporaries(blobs):
    return os.listdir(blobs.root / ".tmp")


def test_bytes_come_back_counted_and_hashed(blobs):
    stored = blobs.put("a/b", [b"one", b"", b"two"])
    assert (stored.key, stored.size_bytes, stored.sha256) == ("a/b", 6, sha(b"onetwo"))
    assert read(blobs, "a/b") == b"onetwo"
    assert blobs.size_bytes("a/b") == 6


def test_an_empty_blob_is_a_blob(blobs):
    blobs.put("a", [])
    assert (blobs.exists("a"), blobs.size_bytes("a")) == (True, 0)


def test_put_replaces(blobs):
    blobs.put("a", [b"one"])
    blobs.put("a", [b"two"])
    assert read(blobs, "a") == b"two"


def test_a_reader_keeps_the_bytes_it_opened(blobs):
    blobs.put("a", [b"one"])
    with blobs.open("a") as file:
        blobs.put("a", [b"two"])
        assert file.read() == b"one"


def test_a_conditional_create_does_not_replace(blobs):
    blobs.put_if_absent("a", [b"one"])
    with pytest.raises(BlobExists):
        blobs.put_if_absent("a", [b"two"])
    assert read(blobs, "a") == b"one"
    assert temporaries(blobs) == []


@pytest.mark.pitfall("U17")
def test_of_32_conditional_creates_one_wins(blobs):
    def create(n: int) -> int | None:
        try:
            blobs.put_if_absent("artifacts/t/b/publication.json", [b"%d" % n])
        except BlobExists:
            return None
        return n

    with ThreadPoolExecutor(32) as pool:
        winners = [n for n in pool.map(create, range(32)) if n is not None]
    assert len(winners) == 1
    assert read(blobs, "artifacts/t/b/publication.json") == b"%d" % winners[0]


def test_bytes_with_another_digest_are_refused_and_leave_nothing(blobs):
    with pytest.raises(ChecksumMismatch) as caught:
        blobs.put("a", [b"one"], expected_sha256=sha(b"two"))
    assert caught.value.code == "checksum_mismatch"
    assert not blobs.exists("a")
    assert temporaries(blobs) == []


def test_bytes_with_the_right_digest_and_size_are_stored(blobs):
    stored = blobs.put("a", [b"one"], expected_sha256=sha(b"one"), expected_size=3)
    assert stored.size_bytes == 3


@pytest.mark.parametrize("size", [2, 4])
def test_bytes_of_another_size_are_refused(blobs, size):
    with pytest.raises(ChecksumMismatch):
        blobs.put("a", [b"one"], expected_size=size)
    assert not blobs.exists("a")


def test_an_endless_body_is_cut_off_at_the_expected_size(blobs):
    def endless():
        while True:
            yield b"x" * 1000

    with pytest.raises(ChecksumMismatch):
        blobs.put("a", endless(), expected_size=5000)
    assert temporaries(blobs) == []


def test_a_writer_shows_nothing_before_commit(blobs):
    with blobs.writer("a") as out:
        out.write(b"one")
        assert not blobs.exists("a")
        assert (out.size_bytes, out.sha256) == (3, sha(b"one"))
        out.commit()
    assert read(blobs, "a") == b"one"


def test_a_writer_that_is_left_early_leaves_nothing(blobs):
    with pytest.raises(ConnectionError), blobs.writer("a") as out:  # noqa: PT012
        out.write(b"half")
        raise ConnectionError
    assert (blobs.exists("a"), temporaries(blobs)) == (False, [])


def test_parts_are_composed_in_the_order_given(blobs):
    for number in range(1, 12):
        blobs.put(part_key("upl_1", "f_0", number), [b"%d " % number])
    keys = [part_key("upl_1", "f_0", number) for number in range(1, 12)]
    whole = b"1 2 3 4 5 6 7 8 9 10 11 "
    stored = blobs.compose(file_key("upl_1", "f_0"), keys, expected_sha256=sha(whole))
    assert (read(blobs, stored.key), blobs.exists(keys[0])) == (whole, True)


def test_composing_without_a_part_stores_nothing(blobs):
    blobs.put("p1", [b"one"])
    with pytest.raises(BlobNotFound):
        blobs.compose("whole", ["p1", "p2"])
    assert (blobs.exists("whole"), temporaries(blobs)) == (False, [])


@pytest.mark.pitfall("U10")
def test_composed_parts_that_differ_from_the_digest_are_refused(blobs):
    blobs.put("p1", [b"one"])
    with pytest.raises(ChecksumMismatch):
        blobs.compose("whole", ["p1"], expected_sha256=sha(b"two"))


@pytest.mark.parametrize("missing", ["a", "a/b/c", "dir", "file/below"])
def test_what_is_not_there_is_not_found(blobs, missing):
    blobs.put("dir/x", [b""])
    blobs.put("file", [b""])
    with pytest.raises(BlobNotFound):
        blobs.open(missing)
    with pytest.raises(BlobNotFound):
        blobs.size_bytes(missing)
    assert (blobs.exists(missing), blobs.delete(missing)) == (False, False)


def test_a_deleted_blob_is_gone(blobs):
    blobs.put("a", [b""])
    assert blobs.delete("a")
    assert not blobs.exists("a")


def test_keys_are_listed_below_a_directory(blobs):
    for key in ("a/2", "a/1", "a/b/c", "ab/1"):
        blobs.put(key, [b""])
    assert blobs.keys("a") == ("a/1", "a/2", "a/b/c")
    assert blobs.keys("a/") == blobs.keys("a")
    assert blobs.keys("none") == ()


def test_a_directory_is_deleted_with_all_below_it_and_nothing_beside_it(blobs):
    for key in ("a/1", "a/b/c", "ab/1"):
        blobs.put(key, [b""])
    assert blobs.delete_prefix("a/") == 2
    assert (blobs.keys("a"), blobs.keys("ab"), blobs.delete_prefix("a")) == ((), ("ab/1",), 0)


def test_fetching_gives_the_directory_itself(blobs, tmp_path):
    blobs.put("a/b/c", [b"x"])
    assert (blobs.fetch("a/b", tmp_path / "copy") / "c").read_bytes() == b"x"
    with pytest.raises(BlobNotFound):
        blobs.fetch("none", tmp_path / "copy")


def test_temporary_files_of_a_killed_process_can_be_swept(blobs):
    left = blobs.root / ".tmp" / "left"
    left.write_bytes(b"x")
    at = left.stat().st_mtime
    assert blobs.sweep(3600, now=at + 3599) == 0
    assert blobs.sweep(3600, now=at + 3601) == 1
    assert temporaries(blobs) == []


HOSTILE = [
    "",
    "/etc/passwd",
    "..",
    "../x",
    "a/../../x",
    "a//b",
    "a/",
    "./a",
    "a/./b",
    ".tmp/x",
    "a/.hidden",
    "a\\b",
    "a\x00b",
    "a\n",
    "a b",
    "%2e%2e/x",
    "é",
    "a/" * 16 + "a",
    "x" * 201,
    "-rf",
]


@pytest.mark.parametrize("key", HOSTILE)
def test_a_key_that_is_not_plain_is_refused_everywhere(blobs, key):
    for use in (blobs.open, blobs.exists, blobs.delete, blobs.writer, blobs.size_bytes):
        with pytest.raises(BadBlobKey):
            use(key)


@given(st.text(max_size=40))
def test_a_key_that_is_accepted_stays_inside_the_root(tmp_path_factory, key):
    root = tmp_path_factory.getbasetemp() / "root"
    try:
        path = root / check_key(key)
    except BadBlobKey:
        return
    assert os.path.normpath(path) == str(path)
    assert path.is_relative_to(root)


@pytest.mark.parametrize("make", [lambda: part_key("../u", "f", 1), lambda: build_prefix("t", "../b")])
def test_names_made_of_something_else_than_ids_are_refused(make):
    with pytest.raises(BadBlobKey):
        make()


def test_names_are_made_of_ids():
    assert part_key("upl_1", "upl_1_0", 3) == "uploads/upl_1/upl_1_0.part3"
    assert file_key("upl_1", "upl_1_0") == "uploads/upl_1/files/upl_1_0"
    assert build_prefix("ten_1", "b1") == "artifacts/ten_1/b1"
