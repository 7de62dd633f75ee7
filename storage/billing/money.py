"""Text forms of nano-USD. Exact integers throughout: a float never holds money."""

from __future__ import annotations

import re

NANO_PER_USD = 1_000_000_000
_AMOUNT = re.compile(r"(-?)([0-9]{1,18})(?:\.([0-9]{1,9}))?")


def exact_usd(nano_usd: int) -> str:
    """All nine decimals that matter, such as `4.5`, `0.000000001` or `0`; the form for JSON."""
    whole, rest = divmod(abs(nano_usd), NANO_PER_USD)
    decimals = f".{rest:09d}".rstrip("0").rstrip(".")
    return f"{'-' if nano_usd < 0 else ''}{whole}{decimals}"


def rounded_usd(nano_usd: int, places: int = 2) -> str:
    """For people: rounded half away from zero to `places` (0 to 9) decimals, such as `2.68`."""
    assert 0 <= places <= 9, "nano-USD have nine decimals"
    unit = 10 ** (9 - places)
    steps = (abs(nano_usd) + unit // 2) // unit
    whole, rest = divmod(steps, 10**places)
    decimals = f".{rest:0{places}d}" if places else ""
    return f"{'-' if nano_usd < 0 and steps else ''}{whole}{decimals}"


def parse_usd(text: str) -> int:
    """Nano-USD of an amount such as `0.45`.

    Raises: ValueError: it is not a plain decimal number with at most nine decimals.
    """
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r:.40} is not an amount in USD with at most nine decimals")
    sign, whole, decimals = match.group(1), match.group(2), match.group(3) or ""
    nano = int(whole) * NANO_PER_USD + int(decimals.ljust(9, "0"))
    return -nano if sign else nano
