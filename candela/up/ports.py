"""Finding ports before anything is started, so that a taken one is a sentence and not a crash loop."""

from __future__ import annotations

import socket

from .errors import PortTaken


def claim_port(host: str, port: int) -> int:
    """The port itself when it is free; a free one for 0.

    Raises:
        PortTaken: something listens there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            raise PortTaken(host, port) from None
        return int(probe.getsockname()[1])


def claim_preferred(host: str, port: int) -> int:
    """The port itself when it is free, else any free one."""
    try:
        return claim_port(host, port)
    except PortTaken:
        return claim_port(host, 0)
