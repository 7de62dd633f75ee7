"""The Celery app, as gateway, scheduler and worker all see it. A message carries a job id, nothing else.

Job state lives in SQL. A message is acknowledged early, so the broker never redelivers it on its own; the
scheduler enqueues again what was lost, and the fencing token makes a double delivery harmless.
"""

from __future__ import annotations

from celery import Celery

COMPILE_TASK = "candela.compile"
COMPILE_QUEUE = "candela-compile"
_VISIBILITY_TIMEOUT_S = 7 * 86_400


def make_celery(redis_url: str) -> Celery:
    """An app bound to the broker at `redis_url`; nothing is connected yet."""
    app = Celery("candela", broker=redis_url, set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        broker_connection_retry_on_startup=True,
        broker_connection_timeout=5,
        broker_heartbeat=10,
        broker_transport_options={
            "visibility_timeout": _VISIBILITY_TIMEOUT_S,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "health_check_interval": 10,
            # Of a sender only: how often it tries a broker that is down. A worker keeps trying for ever.
            "max_retries": 2,
            "interval_start": 0.0,
            "interval_step": 0.2,
            "interval_max": 0.5,
        },
        enable_utc=True,
        result_backend=None,
        task_acks_late=False,
        task_create_missing_queues=True,
        task_default_queue=COMPILE_QUEUE,
        task_ignore_result=True,
        task_reject_on_worker_lost=False,
        task_serializer="json",
        task_store_errors_even_if_ignored=False,
        worker_hijack_root_logger=False,
        worker_prefetch_multiplier=1,
        worker_send_task_events=False,
    )
    return app


def enqueue_compile(app: Celery, job_id: str) -> None:
    """Hand a queued job's id to the workers. Call it after the job's transaction has committed.

    Raises: kombu.exceptions.OperationalError: the broker can't be reached; the scheduler will try again.
    """
    app.send_task(COMPILE_TASK, args=[job_id], queue=COMPILE_QUEUE, ignore_result=True, retry=False)
