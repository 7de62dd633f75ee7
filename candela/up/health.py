"""Asking the gateway whether it can serve."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

HEALTH_PATH = "/health/ready"


def is_healthy(url: str, timeout_s: float = 1.0) -> bool:
    """One GET; any failure to connect or to answer 200 is a no."""
    parts = urlsplit(url)
    assert parts.hostname is not None, "the supervisor builds the address"
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
    try:
        connection.request("GET", HEALTH_PATH)
        return connection.getresponse().status == 200
    except (OSError, http.client.error):
        return False
    finally:
        connection.close()
