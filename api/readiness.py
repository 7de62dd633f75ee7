"""Whether this gateway can serve: SQL, blobs and Redis answer, and the migrations are current."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping

from api.dispatch.leases import Leases
from api.files import Files
from api.store import Store
from storage import keys
from storage.db import Connection, migrations_current

_LIMIT_S = 3.0


class Readiness:
    """Asks each part, bounded. Migrations are looked at until they are current once; they never go back."""

    def __init__(self, store: Store, files: Files, leases: Leases, database_url: str) -> None:
        self._store = store
        self._files = files
        self._leases = leases
        self._database_url = database_url
        self._is_current = False

    async def parts(self) -> Mapping[str, bool]:
        """Each part by name, and whether it is up."""
        checks = {
            "sql": self._sql(),
            "blobs": self._files.run(self._blobs),
            "redis": self._leases.is_up(),
        }
        found = await asyncio.gather(*(_bounded(check) for check in checks.values()))
        return dict(zip(checks, found, strict=True))

    async def _sql(self) -> bool:
        if not self._is_current:
            self._is_current = await self._files.run(migrations_current, self._database_url)
        return self._is_current and await self._store.read(_answers)

    def _blobs(self) -> bool:
        self._files.blobs.exists("health/probe")
        return True


async def _bounded(check: Awaitable[bool]) -> bool:
    """False when a check takes too long or fails: that is what it is for."""
    try:
        return await asyncio.wait_for(check, _LIMIT_S)
    except Exception:
        return False


def _answers(conn: Connection) -> bool:
    keys.list_tenants(conn)
    return True
