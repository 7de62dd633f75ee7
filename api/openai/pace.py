"""Latencies of one answer as they happen: time to the first token, between tokens, to the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from api.metrics import Metrics
from api.openai.events import Event, Piece


class Pace:
    """Feed it each group of events. All times are monotonic and start at the request's arrival."""

    def __init__(
        self, metrics: Metrics, model: str, arrived_s: float, monotonic: Callable[[], float]
    ) -> None:
        self._ttft = metrics.ttft.labels(model)
        self._itl = metrics.itl.labels(model)
        self._e2e = metrics.e2e.labels(model)
        self._arrived_s = arrived_s
        self._monotonic = monotonic
        self._last_s: dict[int, float] = {}

    def feed(self, events: Iterable[Event]) -> None:
        now_s = self._monotonic()
        for event in events:
            if isinstance(event, Piece) and event.tokens:
                self._token(event, now_s)

    def end(self) -> None:
        self._e2e.observe(self._monotonic() - self._arrived_s)

    def _token(self, piece: Piece, now_s: float) -> None:
        """Tokens that came together share the gap since the token before them."""
        if not self._last_s:
            self._ttft.observe(now_s - self._arrived_s)
        last_s = self._last_s.get(piece.choice)
        self._last_s[piece.choice] = now_s
        if last_s is not None:
            for _ in range(piece.tokens):
                self._itl.observe((now_s - last_s) / piece.tokens)
