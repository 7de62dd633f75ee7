"""Integer nano-USD as people read it. Pure; never goes through a float."""

from __future__ import annotations


def show_usd(nano_usd: int) -> str:
    """`$1.50`, `$0.000012`: at least two decimals, no rounding."""
    sign = "-" if nano_usd < 0 else ""
    whole, fraction = divmod(abs(nano_usd), 1_000_000_000)
    digits = f"{fraction:09d}".rstrip("0").ljust(2, "0")
    return f"{sign}${whole:,}.{digits}"
