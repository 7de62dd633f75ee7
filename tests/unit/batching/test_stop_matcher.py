"""Stop strings in a stream: nothing of a stop leaks, and nothing else is held."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batching.engine.stops import Released, StopMatcher


def run(stops: tuple[str, ...], pieces: list[str]) -> tuple[str, str | None]:
    matcher, shown = StopMatcher(stops), ""
    for piece in pieces:
        released = matcher.push(piece)
        shown += released.text
        if released.match is not None:
            return shown, released.match
    return shown + matcher.flush(), None


def by_definition(stops: tuple[str, ...], text: str) -> tuple[str, str | None]:
    """The earliest end wins, then the longest stop."""
    for end in range(1, len(text) + 1):
        complete = [s for s in stops if text[:end].endswith(s)]
        if complete:
            stop = max(complete, key=len)
            return text[: end - len(stop)], stop
    return text, None


@pytest.mark.pitfall("S2")
def test_a_stop_split_over_tokens_never_leaks():
    assert run(("DEFGHIJ",), ["ABC", "DEF", "GH", "IJ", "K"]) == ("ABC", "DEFGHIJ")


@pytest.mark.pitfall("S2")
def test_text_is_held_only_while_it_may_become_a_stop():
    matcher = StopMatcher(("DEFGHIJ",))
    assert matcher.push("ABCDEF") == Released("ABC")
    assert matcher.push("X") == Released("DEFX")


@pytest.mark.pitfall("S2")
def test_the_held_text_is_the_longest_suffix_that_begins_a_stop():
    matcher = StopMatcher(("aab", "abc"))
    assert matcher.push("xaa") == Released("x")
    assert matcher.push("a") == Released("a")


def test_held_text_comes_out_at_the_end():
    assert run(("END",), ["the EN"]) == ("the EN", None)


def test_no_stop_may_begin_in_unarmed_text():
    matcher = StopMatcher(("ab",))
    assert matcher.push("xa", is_armed=False) == Released("xa")
    assert matcher.push("b") == Released("b")
    assert matcher.push("ab") == Released("", "ab")


@pytest.mark.parametrize(("stops", "expected"), [(("b", "ab"), "ab"), (("abc", "b"), "b")])
def test_the_first_end_wins_and_then_the_longest(stops, expected):
    assert run(stops, ["xabc"])[1] == expected


@given(
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=4),
    pieces=st.lists(st.text("abc", max_size=4), max_size=12),
)
def test_token_boundaries_change_nothing(stops, pieces):
    assert run(tuple(stops), pieces) == by_definition(tuple(stops), "".join(pieces))
