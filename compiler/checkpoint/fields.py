"""Read typed values out of untrusted key-value data; note every fault instead of stopping at the first."""

from __future__ import annotations

import math
from collections.abc import Mapping

from compiler.checkpoint.errors import CheckpointError, Problem, ProblemCode
from compiler.checkpoint.strict_json import is_int, shown

MAX_STOP_IDS = 64


class Fields:
    """Typed access to `raw`. A bad field is noted and a harmless value answered; `finish` raises notes."""

    def __init__(self, raw: Mapping[str, object], where: str, problems: list[Problem] | None = None) -> None:
        self.raw = raw
        self._where = where
        self._problems = [] if problems is None else problems

    def nested(self, raw: Mapping[str, object], name: str) -> Fields:
        """A reader of an inner object that notes its faults here."""
        return Fields(raw, f"{self._where}: {name}", self._problems)

    def note(self, code: ProblemCode, message: str, name: str) -> None:
        self._problems.append(Problem(code, f"{self._where}: {message}", name))

    def finish(self) -> None:
        """Raises: `CheckpointError` when anything was noted."""
        if self._problems:
            raise CheckpointError(self._problems)

    def has(self, name: str) -> bool:
        return self.raw.get(name) is not None

    def integer(self, name: str, low: int, high: int) -> int:
        return self._integer(name, self.raw.get(name), low, high)

    def integer_or(self, name: str, low: int, high: int, absent: int, null: int | None = None) -> int:
        """`absent` when the key is missing, `null` (else `absent`) when it holds null."""
        if name not in self.raw:
            return absent
        value = self.raw[name]
        if value is None:
            return absent if null is None else null
        return self._integer(name, value, low, high)

    def positive(self, name: str, absent: float | None = None) -> float:
        """A finite number above zero."""
        value = self.raw.get(name)
        if value is None and absent is not None:
            return absent
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
            if math.isfinite(number) and number > 0:
                return number
        self.note(ProblemCode.BAD_CONFIG, f"{name} must be a number above 0, not {shown(value)}", name)
        return 1.0

    def positive_or_none(self, name: str, absent: float | None) -> float | None:
        """A finite number above zero, or none where the field holds null; `absent` when it is missing."""
        if self.raw.get(name, absent) is None:
            return None
        return self.positive(name, absent)

    def boolean(self, name: str, absent: bool) -> bool:
        value = self.raw.get(name)
        if value is None:
            return absent
        if not isinstance(value, bool):
            self.note(ProblemCode.BAD_CONFIG, f"{name} must be true or false, not {shown(value)}", name)
            return absent
        return value

    def token(self, name: str, absent: int | None) -> int | None:
        """One token id, or none."""
        ids = self.tokens(name, absent=() if absent is None else (absent,))
        return ids[0] if ids else None

    def tokens(self, name: str, absent: tuple[int, ...]) -> tuple[int, ...]:
        """A token id, a list of them, or null."""
        value = self.raw.get(name, list(absent))
        if value is None:
            return ()
        listed = value if isinstance(value, list) else [value]
        ids = [i for i in listed if is_int(i) and 0 <= i < 1 << 31]
        if len(ids) != len(listed) or len(ids) > MAX_STOP_IDS:
            message = f"{name} must be a token id or a list of at most {MAX_STOP_IDS}, not {shown(value)}"
            self.note(ProblemCode.BAD_CONFIG, message, name)
            return ()
        return tuple(dict.fromkeys(ids))

    def _integer(self, name: str, value: object, low: int, high: int) -> int:
        if is_int(value) and low <= value <= high:
            return value
        message = f"{name} must be an integer from {low} to {high}, not {shown(value)}"
        self.note(ProblemCode.BAD_CONFIG, message, name)
        return low
