"""The face of Candela: `Client` and `AsyncClient`, the `candela` command, the supervisor of `candela up`.

The names are imported when they are first used, so that the command line starts without the HTTP client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from candela.client import ApiError, AsyncClient, Client, ClientError

__all__ = ["ApiError", "AsyncClient", "Client", "ClientError"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'candela' has no attribute {name!r}")
    from candela import client

    return getattr(client, name)
