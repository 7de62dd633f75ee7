"""What searches found: given back to those who mean the same, and never an error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from compiler.lower.canonical import Canonical
from compiler.search.cache import SearchCache, entry_of, identity_of, restore
from compiler.search.candidates import Bucket, Nursery
from compiler.search.tune import Record, Tuned
from tests.support.chosen import definition_of

BUCKETS = (Bucket("one", 1, 1, {"T": 1, "S": 64}), Bucket("many", 2, 256, {"T": 128, "S": 256}))
DIMS = ("T", "S")


@cache
def found() -> tuple[Canonical, Tuned, Mapping[str, Any]]:
    """A definition, a result for it, and the entry of that result."""
    definition = definition_of("causal_attention")
    nursery = Nursery(definition, BUCKETS, 2, 2)
    some = nursery.fill(has_tiles=False)
    chosen = {"one": some[0], "many": some[1]}
    records = tuple(
        Record(definition.key, c.name, c.schedule.describe(), c.predicted, 0.5, "", {"one": 1.0, "many": 2.0})
        for c in some[:2]
    )
    tuned = Tuned(definition, chosen, records)
    genomes = {c.name: g for g, c in nursery.formed.items()}
    return definition, tuned, json.loads(json.dumps(entry_of(tuned, genomes, 2, DIMS)))


def given_back(entry: Mapping[str, Any]) -> Tuned | None:
    return restore(entry, found()[0], BUCKETS, 2, DIMS)


def changed(**schedule: object) -> Mapping[str, Any]:
    """The entry with another schedule for one bucket."""
    entry = json.loads(json.dumps(found()[2]))
    entry["chosen"]["one"]["schedule"] |= schedule
    return entry  # type: ignore[no-any-return]


# Entries


def test_a_result_is_formed_anew_from_its_entry() -> None:
    _, tuned, entry = found()
    again = given_back(entry)
    assert again is not None
    assert {b: c.name for b, c in again.chosen.items()} == {b: c.name for b, c in tuned.chosen.items()}
    assert [again.seconds(b) for b in ("one", "many")] == [tuned.seconds(b) for b in ("one", "many")]
    assert again.is_timed()


def test_an_entry_holds_no_code() -> None:
    assert "CANDELA_KERNEL" not in json.dumps(found()[2])


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"seeds": "many", "chosen": {}},
        {"seeds": 2, "chosen": []},
        {"seeds": 2, "chosen": {"one": {}, "many": {}}},
        {"seeds": 10**9, "chosen": {"one": {"form": "x"}, "many": {"form": "x"}}},
    ],
)
def test_what_is_no_entry_is_a_miss(entry: Mapping[str, Any]) -> None:
    assert given_back(entry) is None


@pytest.mark.parametrize(
    "schedule",
    [
        {"gene": 1},
        {"loops": 7},
        {"loops": [{"axis": "o0"}]},
        {"loops": [{"axis": "zz", "block": 1}]},
        {"parallel": -3},
    ],
)
def test_a_schedule_that_cannot_be_is_a_miss(schedule: dict[str, object]) -> None:
    assert given_back(changed(**schedule)) is None


def test_another_source_than_was_gated_is_a_miss() -> None:
    entry = json.loads(json.dumps(found()[2]))
    entry["chosen"]["one"]["source"] = "0" * 64
    assert given_back(entry) is None


# Meaning


def test_what_is_tuned_for_other_sizes_is_something_else() -> None:
    definition = found()[0]
    other = (replace(BUCKETS[0], representative={"T": 2, "S": 64}), BUCKETS[1])
    assert identity_of(definition, BUCKETS) == identity_of(definition, BUCKETS)
    assert identity_of(definition, BUCKETS) != identity_of(definition, other)


def test_sizes_that_a_definition_does_not_have_do_not_count() -> None:
    definition = found()[0]
    other = tuple(replace(b, representative={**b.representative, "NB": 9}) for b in BUCKETS)
    assert identity_of(definition, BUCKETS) == identity_of(definition, other)


# Files


@pytest.fixture
def kept(tmp_path: Path) -> SearchCache:
    made = SearchCache(tmp_path / "search", "this machine")
    made.write("definition", "d", {"strength": 1, "x": [1, 2]})
    return made


def test_an_entry_is_for_its_kind_identity_and_environment(kept: SearchCache, tmp_path: Path) -> None:
    assert kept.read("definition", "d", 1) == {"strength": 1, "x": [1, 2]}
    assert kept.read("definition", "e", 1) is None
    assert kept.read("cuts", "d", 1) is None
    assert SearchCache(tmp_path / "search", "another").read("definition", "d", 1) is None


def test_a_weaker_search_is_not_enough(kept: SearchCache) -> None:
    assert kept.read("definition", "d", 0) is not None
    assert kept.read("definition", "d", 2) is None


@pytest.mark.parametrize("damage", [b"", b"{", b"null", b"[]", b"\xff", b"[" * 100_000, b" " * (2 << 20)])
def test_a_damaged_file_is_a_miss(kept: SearchCache, tmp_path: Path, damage: bytes) -> None:
    (path,) = (tmp_path / "search").iterdir()
    path.write_bytes(damage)
    assert kept.read("definition", "d", 1) is None
    kept.write("definition", "d", {"strength": 1})
    assert kept.read("definition", "d", 1) == {"strength": 1}


def test_a_changed_byte_is_noticed(kept: SearchCache, tmp_path: Path) -> None:
    (path,) = (tmp_path / "search").iterdir()
    path.write_bytes(path.read_bytes().replace(b"[1, 2]", b"[1, 3]"))
    assert kept.read("definition", "d", 1) is None


def test_another_entrys_file_is_a_miss(kept: SearchCache, tmp_path: Path) -> None:
    (path,) = (tmp_path / "search").iterdir()
    kept.write("definition", "e", {"strength": 1})
    (other,) = set((tmp_path / "search").iterdir()) - {path}
    other.write_bytes(path.read_bytes())
    assert kept.read("definition", "e", 1) is None


def test_a_folder_that_cannot_be_written_costs_nothing_but_the_entry(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    there = SearchCache(tmp_path / "file" / "search", "this machine")
    there.write("definition", "d", {"strength": 1})
    assert there.read("definition", "d", 1) is None
