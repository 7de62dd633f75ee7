"""How the dashboard writes numbers, money, times and sizes. Pure; used as template filters."""

from __future__ import annotations

from datetime import UTC, datetime

from storage.billing import rounded_usd

_MICRO_NANO = 1_000
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def usd(nano_usd: int) -> str:
    """Money for people: cents from a cent up, and as many decimals below it as there is something to see."""
    if nano_usd == 0 or nano_usd >= 10_000_000:
        return f"${rounded_usd(nano_usd, 2)}"
    if nano_usd < _MICRO_NANO:
        return "< $0.000001"
    return f"${rounded_usd(nano_usd, 6)}"


def count(number: int | float) -> str:
    """`12,345`."""
    return f"{number:,.0f}"


def compact(number: int | float) -> str:
    """`999`, `1.2k`, `34k`, `5.6M`: for tiles and axes."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            scaled = number / limit
            return f"{scaled:.1f}{unit}" if scaled < 10 else f"{scaled:.0f}{unit}"
    return f"{number:.0f}"


def size(count_bytes: int) -> str:
    """`257.4 MiB`."""
    scaled = float(count_bytes)
    for unit in _UNITS:
        if scaled < 1024 or unit == _UNITS[-1]:
            return f"{scaled:.0f} {unit}" if unit == "B" else f"{scaled:.1f} {unit}"
        scaled /= 1024
    raise AssertionError("the last unit takes everything")


def duration(seconds: float | None) -> str:
    """`240 ms`, `3.2 s`, `4 min 5 s`, `2 h 3 min`, `3 d 4 h`."""
    if seconds is None:
        return "–"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    for big, small, name, rest in ((86_400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")):
        if seconds >= big:
            left = int(seconds % big // small)
            return f"{int(seconds // big)} {name}" + (f" {left} {rest}" if left else "")
    raise AssertionError("a minute is the smallest unit left")


def ago(at: float | None, now: float) -> str:
    """`just now`, `5 min ago`, `3 h ago`, `2 d ago`."""
    if at is None:
        return "–"
    seconds = max(now - at, 0)
    if seconds < 10:
        return "just now"
    for limit, unit, name in ((60, 1, "s"), (3600, 60, "min"), (86_400, 3600, "h")):
        if seconds < limit:
            return f"{int(seconds // unit)} {name} ago"
    return f"{int(seconds // 86_400)} d ago"


def moment(at: float | None) -> str:
    """`2026-01-31 14:05:09 UTC`."""
    return "–" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(at: float) -> str:
    """For `<time datetime>`."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def short_id(identifier: str) -> str:
    """The kind and the last digits, where the randomness of a UUIDv7 is."""
    kind, _, rest = identifier.partition("_")
    return f"{kind}_…{rest[-8:]}" if len(rest) > 10 else identifier
