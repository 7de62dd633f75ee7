"""Part plans and the names, sizes and digests that an upload may announce."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UploadRefused
from storage.parts import (
    DEFAULT_PART_BYTES,
    MAX_FILE_BYTES,
    MAX_PARTS,
    MIB,
    MIN_PART_BYTES,
    check_files,
    is_safe_name,
    plan_parts,
)
from storage.records import FileSpec
from tests.support.storage_rows import a_file, digest

GIB = 1 << 30


@given(size=st.integers(1, MAX_FILE_BYTES), part=st.integers(MIN_PART_BYTES, 64 * MIB))
def test_the_parts_of_a_plan_add_up_to_the_file(size, part):
    plan = plan_parts(size, part)
    full = plan.part_size_bytes * (plan.part_count - 1)
    assert full + plan.length_of(plan.part_count) == size
    assert 1 <= plan.length_of(plan.part_count) <= plan.part_size_bytes


@pytest.mark.pitfall("U12")
@given(size=st.integers(1, MAX_FILE_BYTES), part=st.integers(MIN_PART_BYTES, 64 * MIB))
def test_a_plan_stays_within_the_stores_limits(size, part):
    plan = plan_parts(size, part)
    assert plan.part_count <= MAX_PARTS
    assert plan.part_size_bytes >= part


def test_a_small_file_has_parts_of_the_default_size():
    plan = plan_parts(20 * MIB)
    assert (plan.part_size_bytes, plan.part_count) == (DEFAULT_PART_BYTES, 3)
    assert [plan.length_of(n) for n in (1, 2, 3)] == [8 * MIB, 8 * MIB, 4 * MIB]


@pytest.mark.pitfall("U12")
def test_a_100_gib_file_fits_in_ten_thousand_parts():
    plan = plan_parts(100 * GIB)
    assert (plan.part_size_bytes, plan.part_count) == (11 * MIB, 9310)


@pytest.mark.parametrize("number", [0, 3, -1])
def test_a_part_outside_the_plan_has_no_length(number):
    with pytest.raises(IndexError):
        plan_parts(10 * MIB).length_of(number)


@pytest.mark.parametrize(("size", "part"), [(0, MIN_PART_BYTES), (MAX_FILE_BYTES + 1, 8 * MIB), (1, 100)])
def test_impossible_sizes_have_no_plan(size, part):
    with pytest.raises(ValueError, match="bytes, not"):
        plan_parts(size, part)


@pytest.mark.parametrize("name", ["config.json", "a/b/model-00001-of-00002.safetensors", "für uns.txt"])
def test_plain_relative_names_are_accepted(name):
    assert is_safe_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/etc/passwd",
        "../x",
        "a/../b",
        "a//b",
        "./a",
        "a/.",
        "a\\b",
        "a\nb",
        "a\x00",
        "x" * 256,
        "..",
        "ä" * 128,
        "a/" * 512 + "a",
    ],
)
def test_names_that_could_leave_their_directory_are_refused(name):
    assert not is_safe_name(name)


def test_a_refusal_lists_every_problem():
    specs = [
        FileSpec("../a", 1, digest("a")),
        FileSpec("b", 0, digest("b")),
        FileSpec("c", 1, "XYZ"),
        a_file("d"),
        a_file("d"),
    ]
    with pytest.raises(UploadRefused) as caught:
        check_files(specs)
    found = [(p.code, p.where) for p in caught.value.problems]
    assert found == [
        ("bad_file_name", "../a"),
        ("empty_file", "b"),
        ("bad_digest", "c"),
        ("duplicate_file", "d"),
    ]
    assert caught.value.code == "bad_file_name"


def test_an_upload_without_files_is_refused():
    with pytest.raises(UploadRefused) as caught:
        check_files([])
    assert caught.value.code == "no_files"


@pytest.mark.pitfall("U11")
def test_parts_that_a_store_would_refuse_at_complete_are_refused_at_create():
    with pytest.raises(UploadRefused) as caught:
        check_files([a_file()], part_size_bytes=100)
    assert caught.value.code == "bad_part_size"


def test_a_file_too_large_for_ten_thousand_parts_is_refused():
    with pytest.raises(UploadRefused) as caught:
        check_files([FileSpec("big", MAX_FILE_BYTES + 1, digest("b"))])
    assert caught.value.code == "file_too_large"


def test_too_many_files_are_refused():
    with pytest.raises(UploadRefused) as caught:
        check_files([a_file(f"f{i}") for i in range(1001)])
    assert caught.value.code == "too_many_files"
