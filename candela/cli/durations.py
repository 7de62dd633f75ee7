"""Durations as people write them: `30s`, `5m`, `1h30m`, `250ms`, or plain seconds. Pure."""

from __future__ import annotations

import re

import typer

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PIECE = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PIECE.pattern})+")
_PLAIN = re.compile(r"\d+(?:\.\d+)?")


def parse_duration(text: str, option: str) -> float:
    """Seconds; `option` is named in the complaint.

    Raises:
        typer.BadParameter: the text is not a duration.
    """
    text = text.strip().lower()
    if _PLAIN.fullmatch(text):
        return float(text)
    if not _WHOLE.fullmatch(text):
        why = f"{text!r} is not a duration: write 30s, 5m, 1h30m or plain seconds"
        raise typer.BadParameter(why, param_hint=option)
    return sum(float(number) * _UNITS_S[unit] for number, unit in _PIECE.findall(text))


def show_duration(seconds: float) -> str:
    """The shortest exact form down to a tenth of a second: 90.0 -> `1m30s`."""
    if seconds < 60:
        return f"{seconds:.3g}s"
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    shown = ((hours, "h"), (minutes, "m"), (left, "s"))
    return "".join(f"{count}{unit}" for count, unit in shown if count)
