"""Pricing, pure: price books, rating in integer nano-USD, exact text forms of money."""

from storage.billing.books import PriceBook, default_price_book, price_book
from storage.billing.money import NANO_PER_USD, exact_usd, parse_usd, rounded_usd
from storage.billing.rating import cost_of, event_time_problem, rate, rate_event

__all__ = [
    "NANO_PER_USD",
    "PriceBook",
    "cost_of",
    "default_price_book",
    "event_time_problem",
    "exact_usd",
    "parse_usd",
    "price_book",
    "rate",
    "rate_event",
    "rounded_usd",
]
