"""The journal: what was finished is never done again, a torn line is forgotten, time goes by the lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler.measure.journal import Journal, JournalUnusable


class Clock:
    """A clock that is told the time."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def answer(value: object, asked: list[object]) -> Callable[[], object]:
    """Gives `value`, and notes that it was asked for."""

    def make() -> object:
        asked.append(value)
        return value

    return make


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "journal.jsonl"


def test_a_finished_step_is_not_done_again(path: Path) -> None:
    asked: list[object] = []
    for _ in range(2):
        with Journal(path) as journal:
            assert journal.step("time", "env", "a", make=answer({"k": 0.25}, asked)) == {"k": 0.25}
            assert journal.step("time", "env", "a", make=answer({"k": 9.0}, asked)) == {"k": 0.25}
    assert asked == [{"k": 0.25}]


def test_steps_of_another_meaning_are_others(path: Path) -> None:
    with Journal(path) as journal:
        journal.step("time", "one compiler", "a", make=lambda: 1)
    with Journal(path) as journal:
        assert journal.knows("time", "one compiler", "a")
        assert not journal.knows("time", "another compiler", "a")
        assert not journal.knows("gate", "one compiler", "a")


def test_each_step_is_a_line_on_disk_before_the_next(path: Path) -> None:
    with Journal(path) as journal:
        for number in range(3):
            journal.step("gate", str(number), make=lambda number=number: number)  # type: ignore[misc]
            lines = path.read_text().splitlines()
            assert [json.loads(line)["line"]["value"] for line in lines] == list(range(number + 1))


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_torn_last_line_is_forgotten_and_written_anew(path: Path, cut: int) -> None:
    with Journal(path) as journal:
        journal.step("gate", "a", make=lambda: 1)
        journal.step("gate", "b", make=lambda: 2)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    with Journal(path) as journal:
        assert journal.knows("gate", "a")
        assert not journal.knows("gate", "b")
        assert journal.step("gate", "b", make=lambda: 2) == 2
    assert [json.loads(line)["line"]["value"] for line in path.read_text().splitlines()] == [1, 2]


@pytest.mark.parametrize(
    "junk", [b"{}", b"null", b"\xff\xfe", b'{"crc":1,"line":{"key":"x","at":1,"value":2}}']
)
def test_a_damaged_line_is_left_out(path: Path, junk: bytes) -> None:
    with Journal(path) as journal:
        journal.step("gate", "a", make=lambda: 1)
    path.write_bytes(junk + b"\n" + path.read_bytes())
    with Journal(path) as journal:
        assert journal.step("gate", "a", make=lambda: 3) == 1


def test_a_flipped_digit_is_noticed(path: Path) -> None:
    with Journal(path) as journal:
        journal.step("gate", "a", make=lambda: 1234)
    path.write_bytes(path.read_bytes().replace(b"1234", b"1235"))
    with Journal(path) as journal:
        assert journal.step("gate", "a", make=lambda: 7) == 7


def test_time_goes_on_where_the_lines_end(path: Path) -> None:
    clock = Clock()
    with Journal(path, clock) as journal:
        clock.now += 5
        journal.step("gate", "a", make=lambda: 1)
        assert journal.spent == 5
    clock.now += 1000
    with Journal(path, clock) as journal:
        clock.now += 1000
        journal.step("gate", "a", make=lambda: 1)
        assert journal.spent == 5
        clock.now += 2
        journal.step("gate", "b", make=lambda: 1)
        assert journal.spent == 7


def test_a_journal_has_one_writer(path: Path) -> None:
    with Journal(path), pytest.raises(JournalUnusable, match="in use"):
        Journal(path)
    with Journal(path) as again:
        assert again.spent == 0


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalUnusable, match="file/journal"):
        Journal(tmp_path / "file" / "journal")


def test_without_a_file_it_lives_in_memory() -> None:
    journal = Journal()
    assert journal.step("gate", "a", make=lambda: 1) == 1
    assert journal.step("gate", "a", make=lambda: 2) == 1
