"""Bounds on what an untrusted template may compute: time, text, and values within values.

Each operation of a template is checked before it allocates, so that no single one can take long, and the
clock is looked at between operations. So a time limit holds without killing anything.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, ValuesView
from dataclasses import dataclass, field
from itertools import chain

from batching.prompt.errors import ChatTemplateError

_LONG_WIDTH = re.compile(r"\d{4,}|\*|\{[^{}]*\{")
_MAX_WIDTH = 1000
_COLLECTIONS = (list, tuple, set, frozenset, KeysView, ValuesView, ItemsView)
_MAX_INT_BITS = 4096


@dataclass(frozen=True, slots=True)
class Limits:
    """What one rendering may use.

    `characters` bounds each text, `values` each list or map with all that is nested in it, `made_bytes` all
    that is ever made, kept or not.
    """

    seconds: float = 2.0
    characters: int = 4_000_000
    values: int = 400_000
    made_bytes: int = 256 << 20
    source_characters: int = 262_144


@dataclass(slots=True)
class Guard:
    """The budget of one rendering."""

    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = time.monotonic
    _deadline: float = field(init=False)
    _made_bytes: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._deadline = self.clock() + self.limits.seconds

    def tick(self) -> None:
        """Begin an operation. Raises: `ChatTemplateError` when the time is over."""
        if self.clock() > self._deadline:
            raise ChatTemplateError(f"the chat template ran longer than {self.limits.seconds} s")

    def each(self, items: Iterable[object]) -> Iterator[object]:
        """The items of a loop, the clock watched."""
        for item in items:
            self.tick()
            yield item

    def size(self, characters: int) -> None:
        """Refuse a text of that many characters."""
        if characters > self.limits.characters:
            raise ChatTemplateError(
                f"the chat template made a text of over {self.limits.characters} characters"
            )

    def checked(self, value: object) -> object:
        """A new `value`, once it is known to be within bounds."""
        self.tick()
        self.made(value)
        if isinstance(value, str):
            self.size(len(value))
        elif isinstance(value, int):
            self.whole(value.bit_length())
        elif isinstance(value, (dict, *_COLLECTIONS)):
            self.weigh(value)
        return value

    def made(self, value: object) -> None:
        """Count the memory of a new text or list."""
        if isinstance(value, str):
            self._made_bytes += len(value) if value.isascii() else 4 * len(value)
        elif isinstance(value, (list, tuple)):
            self._made_bytes += 8 * len(value)
        if self._made_bytes > self.limits.made_bytes:
            raise ChatTemplateError("the chat template makes more text than any prompt needs")

    def count(self, values: int) -> None:
        """Refuse a list or map of that many values."""
        if values > self.limits.values:
            raise ChatTemplateError("the chat template made a list or map of too many values")

    def whole(self, bits: int) -> None:
        if bits > _MAX_INT_BITS:
            raise ChatTemplateError("the chat template computed a number beyond reason")

    def weigh(self, value: object) -> int:
        """Characters in `value`, however deep. Raises: `ChatTemplateError` when it holds too many values."""
        pending: list[Iterator[object]] = [iter((value,))]
        count = characters = 0
        while pending:
            for item in pending[-1]:
                count += 1
                self.count(count)
                if isinstance(item, str):
                    characters += len(item)
                    self.size(characters)
                elif isinstance(item, dict):
                    pending.append(chain(item.keys(), item.values()))
                    break
                elif isinstance(item, _COLLECTIONS):
                    pending.append(iter(item))
                    break
            else:
                pending.pop()
        return characters

    def text(self, value: object) -> str:
        """`str(value)`, weighed first."""
        if isinstance(value, str):
            return value
        self.checked(value)
        return str(value)

    def join(self, parts: Iterable[str]) -> str:
        """All parts as one text, measured as they come."""
        listed: list[str] = []
        characters = 0
        for part in parts:
            characters += len(part)
            self.size(characters)
            listed.append(part)
        text = "".join(listed)
        self.made(text)
        return text

    def repeat(self, value: object, times: object) -> None:
        """Check `value * times`."""
        for left, right in ((value, times), (times, value)):
            if isinstance(left, str) and isinstance(right, int):
                self.size(len(left) * right)
            elif isinstance(left, (list, tuple)) and isinstance(right, int):
                self.count(len(left) * right)
        if isinstance(value, int) and isinstance(times, int):
            self.whole(value.bit_length() + times.bit_length())

    def power(self, left: object, right: object) -> None:
        """Check `left ** right`."""
        if isinstance(left, int) and isinstance(right, int):
            self.whole(left.bit_length() * max(right, 1))

    def add(self, left: object, right: object) -> None:
        """Check `left + right`."""
        if isinstance(left, str) and isinstance(right, str):
            self.size(len(left) + len(right))

    def pattern(self, pattern: str) -> None:
        """Check a `%` or `format` pattern: no width that could blow it up."""
        if _LONG_WIDTH.search(pattern):
            raise ChatTemplateError(
                "the chat template uses a format with a width that is too large or computed"
            )

    def width(self, value: object) -> None:
        """Check a padding width, indentation or precision."""
        if isinstance(value, int) and abs(value) > _MAX_WIDTH:
            raise ChatTemplateError(f"the chat template uses a width of more than {_MAX_WIDTH}")

    def replace(self, text: str, old: str, new: str) -> None:
        """Check `text.replace(old, new)`."""
        times = text.count(old) if old else len(text) + 1
        self.size(len(text) + times * max(len(new) - len(old), 0))

    def joined(self, separator: str, parts: Iterable[object]) -> list[object]:
        """The parts that `separator.join` would take, measured first."""
        listed = list(self.each(parts))
        total = sum(len(part) for part in listed if isinstance(part, str))
        self.size(total + len(separator) * len(listed))
        return listed
