"""The checks of right answers can fail: each finds the fault that it is there for."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.checks.answers import check_greedy
from loadtest.checks.compare import Distance, distance, splits
from loadtest.checks.forward import prefill_then_decode
from loadtest.checks.peer import Continuation
from loadtest.checks.report import Finding, render, unmet
from loadtest.checks.texts import read_prompts, read_token_texts

REFERENCE = np.array([[1.0, 2.0, 0.0], [0.0, 5.0, 1.0]], dtype=np.float32)
WANTED = (5, 6, 7, 8)


class Told:
    """An oracle that always continues with `WANTED`."""

    def __init__(self, *margins: float) -> None:
        self.margins = margins

    def logits(self, ids):
        return REFERENCE

    def greedy(self, ids, count):
        return Continuation(WANTED[:count], self.margins[:count])


def saying(*ids: int):
    """A program that, after a prompt of one token, goes on as `ids` does from where it stands."""

    def complete(prompts, counts):
        pairs = zip(prompts, counts, strict=True)
        return [ids[len(prompt) - 1 : len(prompt) - 1 + count] for prompt, count in pairs]

    return complete


def test_equal_logits_are_at_no_distance() -> None:
    found = distance(REFERENCE, REFERENCE)
    assert (found.rms, found.largest, found.agreement) == (0.0, 0.0, 1.0)
    assert found.mean_divergence == pytest.approx(0.0)


def test_distances_add_up_over_prompts() -> None:
    shifted = REFERENCE + np.array([[0, 0, 3], [0, -6, 0]], dtype=np.float32)
    total = distance(shifted, REFERENCE) + distance(REFERENCE, REFERENCE)
    assert total.rms == pytest.approx((45 / 12) ** 0.5)
    assert (total.positions, total.agreement, total.largest) == (4, 0.5, 6.0)


def test_a_logit_that_is_not_a_number_is_infinitely_far() -> None:
    broken = REFERENCE.copy()
    broken[0, 0] = np.nan
    assert distance(broken, REFERENCE).rms == float("inf")


def test_a_shift_of_all_logits_is_an_error_that_no_probability_shows() -> None:
    found = distance(REFERENCE + 1, REFERENCE)
    assert found.rms == pytest.approx(1.0)
    assert found.mean_divergence == pytest.approx(0.0, abs=1e-6)


def test_distances_start_from_nothing() -> None:
    assert Distance() + distance(REFERENCE, REFERENCE) == distance(REFERENCE, REFERENCE)


def test_every_place_where_answers_part_is_found() -> None:
    ours = (5, 0, 7, 0)
    found = splits(WANTED, (1.0, 2.0, 3.0, 4.0), lambda done: ours[done:])
    assert [(s.place, s.wanted, s.got, s.margin) for s in found] == [(1, 6, 0, 2.0), (3, 8, 0, 4.0)]


def test_another_token_fails_where_the_reference_was_sure() -> None:
    findings = check_greedy(saying(5, 6, 0, 8), Told(1.0, 1.0, 0.5, 1.0), [[1]], count=4)
    (missed,) = unmet(findings)
    assert missed.details == ("prompt 1, token 3: 0, not 7, which leads by 0.5",)


def test_another_token_passes_where_the_reference_was_near_a_tie_and_is_listed() -> None:
    findings = check_greedy(saying(5, 6, 0, 8), Told(1.0, 1.0, 9e-4, 1.0), [[1]], count=4)
    assert unmet(findings) == []
    assert "prompt 1, token 3: 0, not 7, which leads by 0.0009" in render(findings)


@pytest.mark.parametrize(
    ("length", "decoded", "chunk", "sizes"),
    [(10, 3, 4, [4, 3, 1]), (8, 0, 4, [4, 4, 1]), (2, 5, 4, [1]), (7, 3, 4, [4, 1])],
)
def test_prompts_go_in_by_chunks_and_end_token_by_token(length, decoded, chunk, sizes) -> None:
    assert prefill_then_decode(length, decoded, chunk) == sizes


def test_a_missed_bound_is_seen_in_the_table() -> None:
    table = render(
        [Finding("a", "b", "3", "<= 2", False), Finding("a", "c", "1", "<= 2"), Finding("a", "d", "4")]
    )
    assert [line.rsplit("|", 2)[1].strip() for line in table.splitlines()[2:]] == ["MISSED", "ok", ""]


def test_there_are_twenty_prompts_of_many_kinds() -> None:
    prompts = read_prompts()
    assert len(prompts) >= 20
    assert {"prose", "python", "digits", "chinese", "arabic", "emoji", "chat"} <= {p.kind for p in prompts}


def test_the_token_texts_hold_what_files_lose() -> None:
    texts = read_token_texts()
    assert {"", " ", "\n", "trailing space "} <= set(texts)
    assert any("<|im_end|>" in text for text in texts)
