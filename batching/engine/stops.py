"""Finding stop strings in a stream. Text is held only while it may still become a stop string."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Released:
    """Text that is safe to show, and the stop string that ended it, if one did."""

    text: str
    match: str | None = None


class StopMatcher:
    """Matches all stop strings at once, a character at a time, so that token boundaries change nothing.

    The match that ends first wins, the longest among those that end together. Each string is a
    Knuth-Morris-Pratt automaton: time is linear in the text, and the held text is exactly the longest
    suffix that begins a stop.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._borders = tuple(_borders(stop) for stop in stops)
        self._matched = [0] * len(stops)
        self._held = ""

    def push(self, text: str, *, is_armed: bool = True) -> Released:
        """Take more text. Unarmed, it passes through, and no stop may begin in it."""
        if not self._stops or not is_armed:
            released, self._held = self._held + text, ""
            self._matched = [0] * len(self._stops)
            return Released(released)
        seen = self._held + text
        for end, character in enumerate(text, start=len(self._held) + 1):
            stop = self._advance(character)
            if stop is not None:
                self._held = ""
                return Released(seen[: end - len(stop)], stop)
        keep = len(seen) - max(self._matched)
        self._held = seen[keep:]
        return Released(seen[:keep])

    def flush(self) -> str:
        """The held text, once nothing can follow it."""
        text, self._held = self._held, ""
        return text

    def _advance(self, character: str) -> str | None:
        """Step every automaton; the longest stop that is complete, if any."""
        complete = None
        for i, stop in enumerate(self._stops):
            size = self._matched[i]
            while size and stop[size] != character:
                size = self._borders[i][size - 1]
            size += stop[size] == character
            self._matched[i] = size
            if size == len(stop) and (complete is None or size > len(complete)):
                complete = stop
        return complete


def _borders(stop: str) -> tuple[int, ...]:
    """For each prefix, the length of its longest proper suffix that is also its prefix."""
    borders, size = [0], 0
    for character in stop[1:]:
        while size and stop[size] != character:
            size = borders[size - 1]
        size += stop[size] == character
        borders.append(size)
    return tuple(borders)
