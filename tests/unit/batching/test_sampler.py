"""The NumPy sampler against a straightforward float64 oracle, published vectors, and its own promises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.runtime.sample import (
    LOWEST_LOGPROB,
    History,
    SamplingRow,
    philox4x32,
    sample,
    token_logprobs,
    uniform,
)

VOCABULARY = 700


def random_logits(seed: int, rows: int = 1, scale: float = 3.0, vocabulary: int = VOCABULARY) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=(rows, vocabulary)) * scale).astype(np.float32)


def kept_by_sorting_everything(logits: np.ndarray, row: SamplingRow) -> dict[int, float]:
    """The distribution after temperature, min-p, top-k and top-p, by the definition and a full sort."""
    weights = np.exp((logits.astype(np.float64) - logits.max()) / row.temperature)
    order = sorted(range(len(weights)), key=lambda i: (-logits[i], i))
    order = [i for i in order if weights[i] >= row.min_p]
    order = order[: row.top_k] if row.top_k else order
    total, running, kept = sum(weights[i] for i in order), 0.0, []
    for i in order:
        if kept and running >= row.top_p * total:
            break
        kept.append(i)
        running += weights[i]
    mass = sum(weights[i] for i in kept)
    return {i: weights[i] / mass for i in kept}


def draws(logits: np.ndarray, row: SamplingRow, count: int) -> np.ndarray:
    rows = [replace(row, position=p) for p in range(count)]
    return sample(np.repeat(logits, count, axis=0), rows).ids


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_vectors(counter, key, expected):
    assert philox4x32(counter, key) == expected


def test_uniform_numbers_are_uniform():
    numbers = np.array([uniform(7, 0, p) for p in range(4000)])
    counts, _ = np.histogram(numbers, bins=20, range=(0.0, 1.0))
    assert ((counts - 200) ** 2 / 200).sum() < 44  # chi-square, 19 degrees of freedom, p = 0.001


def test_seed_stream_and_position_each_change_the_draw():
    drawn = {uniform(1, 0, 5), uniform(2, 0, 5), uniform(1, 1, 5), uniform(1, 0, 6), uniform(-1, 0, 5)}
    assert len(drawn) == 5


def test_greedy_picks_the_largest_and_the_lowest_id_among_equals():
    logits = np.array([[0.0, 2.0, 2.0, 1.0], [3.0, 3.0, 3.0, 3.0]], dtype=np.float32)
    assert sample(logits, [SamplingRow(), SamplingRow()]).ids.tolist() == [1, 0]


@pytest.mark.pitfall("S11")
def test_a_temperature_near_zero_works_like_greedy():
    logits = random_logits(1)
    greedy = sample(logits, [SamplingRow()]).ids
    assert sample(logits, [SamplingRow(temperature=1e-4, seed=3)]).ids == greedy
    assert sample(logits, [SamplingRow(temperature=9e-6, seed=3)]).ids == greedy


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    temperature=st.sampled_from([0.3, 0.8, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 3, 40, 699, 700, 5000]),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 0.99, 1.0]),
    min_p=st.sampled_from([0.0, 0.02, 0.3]),
    scale=st.sampled_from([0.01, 1.0, 6.0]),
)
def test_every_draw_is_a_token_the_oracle_keeps(seed, temperature, top_k, top_p, min_p, scale):
    logits = random_logits(seed, scale=scale)
    row = SamplingRow(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    assert set(draws(logits, row, 20).tolist()) <= set(kept_by_sorting_everything(logits[0], row))


@pytest.mark.parametrize(
    "row",
    [
        SamplingRow(temperature=1.0),
        SamplingRow(temperature=0.7, top_p=0.9),
        SamplingRow(temperature=1.3, top_k=8),
        SamplingRow(temperature=1.0, min_p=0.1),
        SamplingRow(temperature=0.9, top_k=30, top_p=0.8, min_p=0.01),
    ],
)
def test_draw_frequencies_follow_the_oracle_distribution(row):
    logits, count = random_logits(5, vocabulary=300), 6000
    expected = kept_by_sorting_everything(logits[0], row)
    ids, counts = np.unique(draws(logits, replace(row, seed=11), count), return_counts=True)
    seen = dict(zip(ids.tolist(), counts.tolist(), strict=True))
    common = {i: p for i, p in expected.items() if p * count >= 5}
    chi_square = sum((seen.get(i, 0) - p * count) ** 2 / (p * count) for i, p in common.items())
    assert chi_square < len(common) + 4 * (2 * len(common)) ** 0.5


def test_top_k_keeps_the_lowest_ids_among_equals():
    logits = np.zeros((1, 10), dtype=np.float32)
    assert set(draws(logits, SamplingRow(temperature=1.0, top_k=3), 200).tolist()) == {0, 1, 2}


def test_the_token_that_crosses_top_p_is_kept():
    logits = np.log(np.array([[0.5, 0.3, 0.2]], dtype=np.float32))
    drawn = draws(logits, SamplingRow(temperature=1.0, top_p=0.6), 300)
    assert set(drawn.tolist()) == {0, 1}


@pytest.mark.pitfall("S8")
def test_a_row_ignores_its_neighbours():
    logits = random_logits(9, rows=16)
    rows = [SamplingRow(temperature=0.2 * (i % 5), top_p=0.9, seed=i, position=i) for i in range(16)]
    alone = [int(sample(logits[i : i + 1], [rows[i]]).ids[0]) for i in range(16)]
    assert sample(logits, rows).ids.tolist() == alone


def test_where_a_row_lies_in_memory_changes_nothing():
    row = SamplingRow(temperature=1.0, top_p=0.95, seed=4, logprobs=3)
    flat = np.empty(VOCABULARY + 16, dtype=np.float32)
    places = [flat[i : i + VOCABULARY] for i in range(16)]

    def at(place: np.ndarray) -> object:
        place[:] = random_logits(3)[0]
        return sample(place[None], [row]).ids.tolist(), sample(place[None], [row]).logprobs

    assert all(at(place) == at(places[0]) for place in places)


def test_the_logits_are_left_as_they_were():
    logits = random_logits(2)
    before = logits.copy()
    sample(logits, [SamplingRow(temperature=1.0, logit_bias=((3, 5.0),), suppressed=(1,), top_p=0.5)])
    assert np.array_equal(logits, before)


def test_logit_bias_moves_the_pick():
    row = SamplingRow(logit_bias=((17, 100.0),))
    assert sample(random_logits(1), [row]).ids.tolist() == [17]


def test_suppressed_tokens_are_never_picked():
    logits = random_logits(1)
    best = int(logits.argmax())
    assert sample(logits, [SamplingRow(suppressed=(best,))]).ids[0] == np.argsort(-logits[0])[1]


def test_the_mask_leaves_only_allowed_tokens():
    bits = np.zeros(VOCABULARY + (-VOCABULARY) % 32, dtype=np.uint8)
    bits[[5, 6]] = 1
    allowed = np.packbits(bits, bitorder="little").view(np.uint32)
    drawn = draws(random_logits(1, scale=0.1), SamplingRow(temperature=1.0, allowed=allowed), 60)
    assert set(drawn.tolist()) == {5, 6}


def test_a_mask_that_allows_nothing_is_invalid_not_a_token():
    allowed = np.zeros(VOCABULARY // 32 + 1, dtype=np.uint32)
    assert not sample(random_logits(1), [SamplingRow(allowed=allowed)]).is_valid[0]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (SamplingRow(repetition_penalty=2.0), [0.5, -4.0, 1.5, 4.0]),
        (SamplingRow(presence_penalty=0.5), [1.0, -2.5, 2.5, 4.0]),
        (SamplingRow(frequency_penalty=0.5), [1.0, -2.5, 2.0, 4.0]),
        (SamplingRow(frequency_penalty=0.5, presence_penalty=1.0), [1.0, -3.5, 1.0, 4.0]),
    ],
)
def test_penalties_follow_their_formulas(row, expected):
    """Token 0 is in the prompt; token 1 once and token 2 twice in the output."""
    logits = np.array([[1.0, -2.0, 3.0, 4.0]], dtype=np.float32)
    history = History(np.array([0], dtype=np.int32), np.array([1, 2, 2], dtype=np.int32))
    row = replace(row, history=history, temperature=1.0)
    weights = np.exp(np.array(expected))
    counts = np.bincount(draws(logits, row, 8000), minlength=4)
    assert np.allclose(counts / 8000, weights / weights.sum(), atol=0.02)


@pytest.mark.pitfall("S11")
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("row", [SamplingRow(), SamplingRow(temperature=1.0), SamplingRow(suppressed=(3,))])
def test_a_broken_row_is_reported_and_its_neighbours_are_untouched(bad, row):
    logits = random_logits(6, rows=3)
    alone = sample(logits[2:], [row]).ids[0]
    logits[1, 3] = bad
    picked = sample(logits, [row, row, row])
    assert picked.is_valid.tolist() == [True, False, True]
    assert picked.ids[2] == alone


def test_logprobs_are_the_log_softmax_of_the_unmodified_logits():
    logits = random_logits(8)
    exact = logits[0].astype(np.float64)
    exact = exact - exact.max() - np.log(np.exp(exact - exact.max()).sum())
    row = SamplingRow(temperature=0.5, top_p=0.5, logit_bias=((4, 3.0),), logprobs=5, seed=2)
    picked = sample(logits, [row])
    report = picked.logprobs[0]
    best = np.argsort(-exact)[:5]
    assert [i for i, _ in report.top] == best.tolist()
    assert np.allclose([p for _, p in report.top], exact[best], atol=1e-5)
    assert report.logprob == pytest.approx(exact[picked.ids[0]], abs=1e-5)


def test_logprobs_rank_equals_by_lowest_id_and_never_hold_infinity():
    logits = np.array([1.0, -np.inf, 1.0, 1.0], dtype=np.float32)
    report = token_logprobs(logits, 1, 2)
    assert [i for i, _ in report.top] == [0, 2]
    assert report.logprob == LOWEST_LOGPROB


def test_no_alternatives_are_listed_unless_asked_for():
    assert sample(random_logits(1), [SamplingRow(logprobs=0)]).logprobs[0].top == ()
    assert sample(random_logits(1), [SamplingRow()]).logprobs == (None,)
