"""Which control tokens of a rendered chat the template wrote, and which only look like one in a user's text.

Before rendering, each control token that a user spells out is put between two marks, and a cut is set where a
user's text could be one half of a control token. A template's logic sees ordinary text unchanged. After
rendering, a control token counts only where no mark touches it. The marks are private-use characters that
occur nowhere in the input, so that nobody can forge one and nothing is lost.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from batching.prompt.errors import ChatTemplateError

KNOWN_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function", "ipython"})
_PRIVATE_USE = range(0xF0000, 0xFFFFE)
_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Span:
    """A control token at `text[start:end]` that the template wrote."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Rendered:
    """A chat as text without marks. `has_lookalike`: somewhere in it a user spells a control token."""

    text: str
    control: tuple[Span, ...]
    has_lookalike: bool


@dataclass(frozen=True, slots=True)
class _Spellings:
    """The control tokens, longest first, and every proper beginning and end of one."""

    tokens: tuple[str, ...]
    pattern: re.Pattern[str]
    heads: frozenset[str]
    tails: frozenset[str]
    reach: int

    def may_be_inside(self, text: str) -> bool:
        return 0 < len(text) < self.reach and any(text in token for token in self.tokens)


@lru_cache(maxsize=64)
def _spellings(tokens: tuple[str, ...]) -> _Spellings:
    longest_first = sorted(tokens, key=len, reverse=True)
    return _Spellings(
        tokens,
        re.compile("|".join(map(re.escape, longest_first)) or "(?!)"),
        frozenset(token[:i] for token in tokens for i in range(1, len(token))),
        frozenset(token[i:] for token in tokens for i in range(1, len(token))),
        max(map(len, tokens), default=0),
    )


class Marker:
    """Marks user text before a rendering and reads the marks after it. One for each rendering."""

    def __init__(self, control: Collection[str], values: Collection[object]) -> None:
        """`control`: the control tokens' spellings; `values`: everything that the template will see."""
        self._open, self._close, self._cut = _unused_characters(values, 3)
        self._control = _spellings(tuple(sorted(control)))

    def mark(self, value: object, depth: int = 0) -> object:
        """A copy of `value` (texts, lists and maps, any depth to 64) with its texts marked.

        Raises:
            ChatTemplateError: nested deeper than that.
        """
        if depth > _MAX_DEPTH:
            raise ChatTemplateError(f"messages and tools may be nested at most {_MAX_DEPTH} deep")
        if isinstance(value, str):
            return self._mark_text(value)
        if isinstance(value, Mapping):
            return {
                self.mark(key, depth + 1): self._mark_entry(key, item, depth + 1)
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.mark(item, depth + 1) for item in value]
        return value

    def read(self, rendered: str) -> Rendered:
        """Take the marks out of `rendered` and say what they show."""
        text, breaks, looks = self._without_marks(rendered)
        control: list[Span] = []
        position, has_lookalike = 0, bool(looks)
        while match := self._control.pattern.search(text, position):
            start, end = match.span()
            is_touched = any(start < at < end for at in breaks) or any(
                a < end and start < b for a, b in looks
            )
            if is_touched:
                has_lookalike, position = True, start + 1
            else:
                control.append(Span(start, end))
                position = end
        return Rendered(text, tuple(control), has_lookalike)

    def _mark_entry(self, key: object, value: object, depth: int) -> object:
        if key == "role" and isinstance(value, str) and value in KNOWN_ROLES:
            return value
        if (
            key in ("role", "content", "text")
            and isinstance(value, str)
            and self._control.may_be_inside(value)
        ):
            return f"{self._cut}{self._mark_text(value)}{self._cut}"
        return self.mark(value, depth)

    def _mark_text(self, text: str) -> str:
        control = self._control
        marked = control.pattern.sub(lambda match: f"{self._open}{match[0]}{self._close}", text)
        sizes = range(1, min(len(text), control.reach) + 1)
        if any(text[-size:] in control.heads for size in sizes):
            marked += self._cut
        if any(text[:size] in control.tails for size in sizes):
            marked = self._cut + marked
        return marked

    def _without_marks(self, rendered: str) -> tuple[str, list[int], list[tuple[int, int]]]:
        """The text, the places where a mark stood, and the marked spans that are still whole."""
        pieces: list[str] = []
        breaks: list[int] = []
        looks: list[tuple[int, int]] = []
        length, opened = 0, None
        for piece in re.split(f"([{self._open}{self._close}{self._cut}])", rendered):
            if piece in (self._open, self._close, self._cut):
                if piece == self._close and opened is not None:
                    looks.append((opened, length))
                opened = length if piece == self._open else None
                breaks.append(length)
            else:
                pieces.append(piece)
                length += len(piece)
        return "".join(pieces), breaks, looks


def _unused_characters(values: Collection[object], count: int) -> list[str]:
    """Private-use characters that occur in no text of `values`."""
    used = {char for text in _texts(values) if not text.isascii() for char in text if char >= "\U000f0000"}
    found = [chr(code) for code in _PRIVATE_USE[: len(used) + count] if chr(code) not in used]
    if len(found) < count:
        raise ChatTemplateError("the messages use up the private-use characters of Unicode")
    return found[:count]


def _texts(values: Collection[object], depth: int = 0) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif depth > _MAX_DEPTH:
            return
        elif isinstance(value, Mapping):
            yield from _texts(value.keys(), depth + 1)
            yield from _texts(value.values(), depth + 1)
        elif isinstance(value, (list, tuple)):
            yield from _texts(value, depth + 1)
