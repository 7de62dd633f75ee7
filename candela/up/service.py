"""The seam between the supervisor and what it keeps running: our processes and the Valkey server."""

from __future__ import annotations

from typing import Protocol

from .identity import ProcessIdentity


class Running(Protocol):
    """One started process."""

    @property
    def identity(self) -> ProcessIdentity: ...

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""

    def terminate(self) -> None:
        """Ask it to end; returns at once."""

    def kill(self) -> None:
        """End it and what it started, and wait until it is gone. Harmless when it has ended."""

    def last_words(self) -> str:
        """Where its log is and how that ends, for an error message."""


class Service(Protocol):
    """Something that is started again when it ends. Those with a higher `stop_rank` are stopped later."""

    @property
    def name(self) -> str: ...

    @property
    def stop_rank(self) -> int: ...

    @property
    def stop_grace_s(self) -> float: ...

    def spawn(self) -> Running: ...
