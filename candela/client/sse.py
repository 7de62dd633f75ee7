"""Server-sent events: lines in, events out. Pure; the shells own the connection.

Source: WHATWG HTML, section 9.2.6 (interpreting an event stream).
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One dispatched event; `id` is the last id seen so far, as the standard has it."""

    kind: str
    data: str
    id: str | None


@dataclass(slots=True)
class SseDecoder:
    """Feed it decoded lines without their line ends; it gives back an event at each blank line."""

    _data: list[str] = field(default_factory=list)
    _kind: str = ""
    _last_id: str | None = None

    def feed(self, line: str) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        if line.startswith(":"):
            return None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value
        elif name == "id" and "\0" not in value:
            self._last_id = value
        return None

    def _dispatch(self) -> ServerEvent | None:
        kind, data = self._kind or "message", self._data
        self._kind, self._data = "", []
        return ServerEvent(kind, "\n".join(data), self._last_id) if data else None
