"""What the routes work with, put together once by `api.main` (or by a test) and handed around as values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from api.catalog import Catalog
from api.dispatch.dispatcher import Dispatcher
from api.dispatch.leases import Leases
from api.files import Files
from api.metrics import Metrics
from api.prompt.pool import PromptPool
from api.readiness import Readiness
from api.settings import GatewaySettings
from api.signing import Signer
from api.store import Store
from common.clock import Clock

Enqueue = Callable[[str], None]
"""Put a job's id on the compile queue. May raise when the broker is away; the scheduler repeats it then."""


@dataclass(frozen=True, slots=True)
class Services:
    settings: GatewaySettings
    store: Store
    files: Files
    leases: Leases
    signer: Signer
    prompts: PromptPool
    catalog: Catalog
    dispatcher: Dispatcher
    metrics: Metrics
    readiness: Readiness
    enqueue: Enqueue
    clock: Clock

    async def start(self) -> None:
        """Begin what runs in the background."""
        await self.leases.start()
        await self.dispatcher.start()
        await self.prompts.warm()

    async def close(self) -> None:
        """Stop, in the order in which one part needs another: what has ended is settled first."""
        await self.dispatcher.close()
        await self.prompts.close()
        await self.leases.close()
        self.files.close()
        self.store.close()


def of(request: Request) -> Services:
    found = request.app.state.services
    assert isinstance(found, Services)
    return found


async def _given(request: Request) -> Services:
    """A coroutine only so that the framework doesn't send it to a thread."""
    return of(request)


Given = Annotated[Services, Depends(_given)]
