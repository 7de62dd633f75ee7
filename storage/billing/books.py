"""The price list, by version. A published version never changes: a new price is a new version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storage.errors import UnknownPriceVersion
from storage.records import Meter


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Prices in integer nano-USD for one million units of each meter."""

    version: str
    nano_usd_per_million: Mapping[Meter, int]

    def __post_init__(self) -> None:
        assert set(self.nano_usd_per_million) == set(Meter), "a book prices every meter, if only at zero"
        assert all(price >= 0 for price in self.nano_usd_per_million.values()), "a price is never negative"


_BOOKS: Mapping[str, PriceBook] = {
    book.version: book
    for book in (
        PriceBook(
            "list-1",
            {
                Meter.PROMPT_TOKENS: 50_000_000,  # 0.05 USD a million
                Meter.CACHED_TOKENS: 12_500_000,  # 0.0125 USD a million
                Meter.COMPLETION_TOKENS: 200_000_000,  # 0.20 USD a million
                Meter.REPLICA_SECONDS: 10_000_000_000,  # 0.00001 USD a second
                Meter.COMPILE_SECONDS: 20_000_000_000,  # 0.00002 USD a second
            },
        ),
    )
}


def default_price_book() -> PriceBook:
    """The book that a request starting now is priced by."""
    return _BOOKS["list-1"]


def price_book(version: str) -> PriceBook:
    """The book of a stored `price_version`.

    Raises: UnknownPriceVersion.
    """
    book = _BOOKS.get(version)
    if book is None:
        raise UnknownPriceVersion(version)
    return book
