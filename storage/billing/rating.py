"""What a usage event costs, and when its time can be believed. Pure.

What is billed when something fails: a failed or cancelled compile nothing, a replica that never got ready
nothing; tokens that were generated before a failure or a disconnect are billed, once.
"""

from __future__ import annotations

from storage.billing.books import PriceBook, price_book
from storage.records import Meter, TokenCounts, UsageEvent

_PER = 1_000_000
MAX_AHEAD_S = 5 * 60.0
MAX_BEHIND_S = 35 * 86_400.0


def rate(book: PriceBook, meter: Meter, quantity: int) -> int:
    """Nano-USD for `quantity` units, rounded half up to a nano-USD."""
    return (quantity * book.nano_usd_per_million[meter] + _PER // 2) // _PER


def rate_event(event: UsageEvent) -> int:
    """Nano-USD by the book that the event names.

    Raises: UnknownPriceVersion.
    """
    return rate(price_book(event.price_version), event.meter, event.quantity)


def token_quantities(counts: TokenCounts) -> tuple[tuple[Meter, int], ...]:
    """The meters of one request; each prompt token is counted by one meter, cached or not.

    Zeros are left out.
    """
    cached = min(counts.cached_tokens, counts.prompt_tokens)
    quantities = (
        (Meter.PROMPT_TOKENS, counts.prompt_tokens - cached),
        (Meter.CACHED_TOKENS, cached),
        (Meter.COMPLETION_TOKENS, counts.completion_tokens),
    )
    return tuple((meter, quantity) for meter, quantity in quantities if quantity > 0)


def cost_of(book: PriceBook, counts: TokenCounts) -> int:
    """Nano-USD of one request's tokens; with the highest counts that it may reach, its reservation."""
    return sum(rate(book, meter, quantity) for meter, quantity in token_quantities(counts))


def event_time_problem(occurred_at: float, now: float) -> str | None:
    """Why an event's time can't be accepted at `now`; None when it can."""
    if occurred_at > now + MAX_AHEAD_S:
        return (
            f"event time is {occurred_at - now:.0f} s in the future; at most {MAX_AHEAD_S:.0f} s are accepted"
        )
    if occurred_at < now - MAX_BEHIND_S:
        return (
            f"event time is {now - occurred_at:.0f} s in the past; at most {MAX_BEHIND_S:.0f} s are accepted"
        )
    return None
