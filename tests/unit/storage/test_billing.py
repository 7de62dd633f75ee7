"""Prices and money, exactly."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.billing import (
    PriceBook,
    cost_of,
    default_price_book,
    event_time_problem,
    exact_usd,
    parse_usd,
    price_book,
    rate,
    rate_event,
    rounded_usd,
)
from storage.errors import UnknownPriceVersion
from storage.records import Meter, TokenCounts, UsageEvent
from tests.support.storage_rows import NOW

BOOK = PriceBook(
    "test",
    {
        Meter.PROMPT_TOKENS: 4_500_000_000,  # 0.0000045 USD a token
        Meter.CACHED_TOKENS: 1,
        Meter.COMPLETION_TOKENS: 3_000_000,
        Meter.REPLICA_SECONDS: 0,
        Meter.COMPILE_SECONDS: 500_000,
    },
)
AMOUNTS = st.integers(-(10**20), 10**20)


@pytest.mark.pitfall("B14")
def test_a_million_small_events_sum_exactly():
    total = sum(rate(BOOK, Meter.PROMPT_TOKENS, 1) for _ in range(1_000_000))
    assert (exact_usd(total), rounded_usd(total)) == ("4.5", "4.50")


@pytest.mark.pitfall("B15")
def test_small_amounts_are_not_lost_beside_a_large_one():
    balance = parse_usd("1000000000") + 1000 * parse_usd("0.00000001")
    assert exact_usd(balance) == "1000000000.00001"


@pytest.mark.pitfall("B17")
def test_half_a_cent_is_rounded_away_from_zero():
    assert rounded_usd(parse_usd("2.675")) == "2.68"
    assert rounded_usd(parse_usd("-2.675")) == "-2.68"
    assert rounded_usd(parse_usd("2.674999999")) == "2.67"


@pytest.mark.pitfall("B19")
def test_money_survives_json_as_a_string():
    amount = 9_007_199_254_740_993
    text = json.loads(json.dumps({"cost": exact_usd(amount)}))["cost"]
    assert parse_usd(text) == amount


@given(AMOUNTS)
def test_the_exact_form_parses_back(amount):
    assert parse_usd(exact_usd(amount)) == amount


@given(AMOUNTS, st.integers(0, 9))
def test_rounding_is_off_by_at_most_half_a_unit(amount, places):
    assert abs(parse_usd(rounded_usd(amount, places)) - amount) * 2 <= 10 ** (9 - places)


@pytest.mark.parametrize(
    ("nano", "text"),
    [
        (0, "0"),
        (1, "0.000000001"),
        (-1, "-0.000000001"),
        (10**9, "1"),
        (1_230_000_000, "1.23"),
        (100, "0.0000001"),
    ],
)
def test_the_exact_form_has_no_needless_digits(nano, text):
    assert exact_usd(nano) == text


@pytest.mark.parametrize(
    ("nano", "places", "text"),
    [(0, 2, "0.00"), (-1, 2, "0.00"), (5_000_000, 2, "0.01"), (10**9, 0, "1"), (1, 9, "0.000000001")],
)
def test_the_rounded_form_has_a_fixed_number_of_decimals(nano, places, text):
    assert rounded_usd(nano, places) == text


@pytest.mark.parametrize(
    "text", ["", "1.", ".5", "1e3", "0.0000000001", "1,5", " 1", "NaN", "--1", "+1", "١"]
)
def test_other_forms_of_an_amount_are_refused(text):
    with pytest.raises(ValueError, match="amount"):
        parse_usd(text)


def test_a_fraction_of_a_nano_usd_is_rounded_half_up():
    assert [rate(BOOK, Meter.COMPILE_SECONDS, n) for n in (0, 1, 2, 3)] == [0, 1, 1, 2]


@given(st.integers(0, 10**12))
def test_a_price_is_off_by_at_most_half_a_nano_usd(quantity):
    exact = quantity * BOOK.nano_usd_per_million[Meter.COMPILE_SECONDS]
    assert abs(rate(BOOK, Meter.COMPILE_SECONDS, quantity) * 1_000_000 - exact) * 2 <= 1_000_000


def test_cached_tokens_are_priced_once_and_by_their_own_price():
    book = default_price_book()
    counts = TokenCounts(prompt_tokens=1000, cached_tokens=400, completion_tokens=10)
    expected = (
        rate(book, Meter.PROMPT_TOKENS, 600)
        + rate(book, Meter.CACHED_TOKENS, 400)
        + rate(book, Meter.COMPLETION_TOKENS, 10)
    )
    assert cost_of(book, counts) == expected


def test_more_cached_than_prompt_tokens_are_not_billed():
    book = default_price_book()
    assert cost_of(book, TokenCounts(prompt_tokens=5, cached_tokens=9)) == rate(book, Meter.CACHED_TOKENS, 5)


@pytest.mark.pitfall("B24")
def test_an_event_is_priced_by_the_version_it_names():
    event = UsageEvent("ten_1", "req_1", Meter.COMPLETION_TOKENS, 1_000_000, "list-1", "chat", NOW)
    assert rate_event(event) == parse_usd("0.2")
    with pytest.raises(UnknownPriceVersion):
        rate_event(replace(event, price_version="list-0"))


def test_the_default_book_can_be_looked_up_by_its_version():
    book = default_price_book()
    assert price_book(book.version) is book


@pytest.mark.pitfall("B21")
@pytest.mark.parametrize(
    ("offset_s", "is_fine"),
    [(0, True), (300, True), (301, False), (-35 * 86_400, True), (-35 * 86_400 - 1, False)],
)
def test_event_times_far_from_now_are_a_problem(offset_s, is_fine):
    assert (event_time_problem(NOW + offset_s, NOW) is None) == is_fine
