"""The curl examples of a page, as requests: just the options that our pages use."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_EXAMPLE = re.compile(r"^(curl .*?)\s+# (\d{3})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CurlExample:
    """One line of a page, and the status that the page promises."""

    command: str
    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: str | None
    status: int


def curl_examples(page: Path) -> tuple[CurlExample, ...]:
    """Those with a status behind them, in order; `$NAME` stands as it is."""
    blocks = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return tuple(
        _read(command, int(status)) for block in blocks for command, status in _EXAMPLE.findall(block)
    )


def _read(command: str, status: int) -> CurlExample:
    words = iter(shlex.split(command)[1:])
    method, url, headers, body = "", "", [], None
    for word in words:
        if word == "-X":
            method = next(words)
        elif word == "-H":
            name, _, value = next(words).partition(":")
            headers.append((name, value.strip()))
        elif word == "-d":
            body = next(words)
        elif word.startswith("-"):
            assert word in ("-s", "-sN"), f"{word} is not known here: {command}"
        else:
            url = word
    return CurlExample(command, method or ("POST" if body else "GET"), url, tuple(headers), body, status)
