"""The gateway's process: `python -m api.main`. Reads settings, builds the services, runs uvicorn and
`/metrics`.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import prometheus_client
import uvicorn

from api.app import create_app
from api.catalog import Catalog
from api.dispatch.dispatcher import Dispatcher, DispatchLimits
from api.dispatch.fleet import Fleet
from api.dispatch.leases import Leases, RedisLeases
from api.dispatch.outlook import outlook
from api.files import Files
from api.metrics import make_metrics
from api.prompt.pool import PromptPool
from api.readiness import Readiness
from api.services import Enqueue, Services
from api.settings import GatewaySettings
from api.signing import Signer
from api.store import Store
from common.clock import wall_clock
from common.ids import Kind, new_id
from common.logs import configure_logging
from storage.blobs import DiskBlobs
from storage.db import Database
from storage.queue import enqueue_compile, make_celery


def main() -> None:
    """Serve until SIGTERM; then finish the streams that run, within `CANDELA_SHUTDOWN_GRACE_S`."""
    settings = GatewaySettings()  # type: ignore[call-arg]  # the secret comes from the environment
    configure_logging("gateway", settings.log_level)
    leases = RedisLeases(settings.redis_url, new_id(Kind.WORKER), wall_clock)
    enqueue = partial(enqueue_compile, make_celery(settings.redis_url))
    services = build_services(settings, leases, enqueue)
    host, port = settings.metrics_host_port()
    metrics_server, _ = prometheus_client.start_http_server(port, host, services.metrics.registry)
    config = uvicorn.Config(
        create_app(services),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(settings.shutdown_grace_s),
    )
    try:
        _Server(config).run()
    finally:
        metrics_server.shutdown()


class _Server(uvicorn.Server):
    """A server whose graceful end after a signal is a success; uvicorn would raise the signal again."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {
            number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def build_services(settings: GatewaySettings, leases: Leases, enqueue: Enqueue) -> Services:
    """Put the gateway's parts together; nothing runs yet."""
    settings.blobs.mkdir(parents=True, exist_ok=True)
    store = Store(Database(settings.database))
    files = Files(DiskBlobs(settings.blobs))
    metrics = make_metrics()
    dispatcher = Dispatcher(
        Fleet(
            leases,
            settings.max_held_requests,
            time.monotonic,
            lambda deployment_id: store.read(outlook, deployment_id),
            settings.hopeless_after_s,
        ),
        store,
        metrics,
        DispatchLimits(settings.request_deadline_s, settings.replica_silence_s, settings.reservation_lease_s),
        wall_clock,
        time.monotonic,
    )
    return Services(
        settings=settings,
        store=store,
        files=files,
        leases=leases,
        signer=Signer(settings.secret_key.get_secret_value()),
        prompts=PromptPool(
            size=settings.prompt_workers,
            queue=settings.prompt_queue,
            time_limit_s=settings.prompt_time_limit_s,
        ),
        catalog=Catalog(store, files, settings.home / "cache" / "tokenizers"),
        dispatcher=dispatcher,
        metrics=metrics,
        readiness=Readiness(store, files, leases, settings.database),
        enqueue=enqueue,
        clock=wall_clock,
    )


if __name__ == "__main__":
    main()
