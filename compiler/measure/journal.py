"""The journal of a search: one line of JSON for each finished build, gate run and round of measurements.

A line is on disk before anything follows from it. A search that begins again with the same journal takes
every answer that it holds from there, and goes on where it ended; one that is complete gives the same program
byte for byte. Its clock goes by what the lines say, so decisions that depend on time spent come out the same.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from compiler.errors import CompilerError

log = logging.getLogger(__name__)


class JournalUnusable(CompilerError):
    """The file cannot be a journal: another search writes it, or it cannot be opened."""

    code = "journal_unusable"


@dataclass(frozen=True, slots=True)
class _Line:
    at: float
    value: Any


class Journal:
    """Answers by key, appended to `path`, or held in memory alone. Use as a context manager.

    `spent` is the seconds that the search had taken when the last answer was there.
    """

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines: dict[str, _Line] = {}
        self._file = _open(path) if path is not None else None
        self.spent = 0.0
        self.recalled = 0
        self._began = clock()
        if self._file is not None:
            self._read(self._file)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def knows(self, kind: str, *what: str) -> bool:
        """Whether `step` would not have to do anything."""
        return _key(kind, *what) in self._lines

    def step(self, kind: str, *what: str, make: Callable[[], Any]) -> Any:
        """The answer that the journal holds for `kind` of `what`; else `make` it, and write it down.

        Answers are what JSON can say. Whatever decides an answer is part of `what`.
        """
        key = _key(kind, *what)
        known = self._lines.get(key)
        if known is not None:
            self.recalled += 1
            self.spent = max(self.spent, known.at)
            self._began = self._clock() - self.spent
            return known.value
        value = json.loads(json.dumps(make()))
        self.spent = round(self._clock() - self._began, 6)
        self._lines[key] = _Line(self.spent, value)
        if self._file is not None:
            body = {"kind": kind, "what": what[-1] if what else "", "key": key, "at": self.spent}
            _append(self._file, body | {"value": value})
        return value

    def _read(self, file: int) -> None:
        """Take every whole line; a torn last one is cut off, so that the next does not follow it."""
        with os.fdopen(os.dup(file), "rb") as stream:
            stream.seek(0)
            data = stream.read()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.ftruncate(file, len(whole))
        for number, text in enumerate(whole.splitlines(), start=1):
            line = _parse(text)
            if line is None:
                log.warning("line %d of the journal is damaged: it is left out", number)
            else:
                self._lines[line["key"]] = _Line(float(line["at"]), line["value"])


def _key(kind: str, *what: str) -> str:
    return hashlib.sha256("\0".join((kind, *what)).encode()).hexdigest()[:24]


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise JournalUnusable(f"the journal {path} cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        raise JournalUnusable(f"the journal {path} is in use by another compile: give it its own") from error
    return file


def _append(file: int, body: dict[str, Any]) -> None:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    line = f'{{"crc":{zlib.crc32(text.encode())},"line":{text}}}\n'.encode()
    os.write(file, line)
    os.fsync(file)


def _parse(text: bytes) -> dict[str, Any] | None:
    """The line, if it says what was written."""
    try:
        outer = json.loads(text)
        body = outer["line"]
        again = json.dumps(body, sort_keys=True, separators=(",", ":"))
        is_whole = outer["crc"] == zlib.crc32(again.encode()) and isinstance(body["key"], str)
        return {**body, "at": float(body["at"])} if is_whole and "value" in body else None
    except (ValueError, TypeError, KeyError):
        return None
