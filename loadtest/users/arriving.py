"""The open loop: requests arrive at their own rate, whether earlier ones have been answered or not."""

from __future__ import annotations

import logging
from typing import Any

import gevent
import requests
from gevent.pool import Pool
from locust import constant, task

from loadtest.exchange import exchange
from loadtest.scenarios import arrivals
from loadtest.users.chat import ChatUser
from loadtest.users.given import next_seed

log = logging.getLogger(__name__)

_MOST_IN_FLIGHT = 64


class ArrivingUser(ChatUser):
    """One of these sends for all. With too many in flight it has to wait, and says that the loop closed."""

    wait_time = constant(0)
    fixed_count = 1

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.gaps = arrivals(max(stage.rate_per_s for stage in self.given.scenario.stages), next_seed())
        self.in_flight = Pool(_MOST_IN_FLIGHT)

    @task
    def ask(self) -> None:
        gevent.sleep(next(self.gaps))
        if self.in_flight.full():
            log.warning("%d requests are in flight: the loop is no longer open", _MOST_IN_FLIGHT)
        self.in_flight.spawn(self._one)

    def on_stop(self) -> None:
        self.in_flight.join()
        super().on_stop()

    def _one(self) -> None:
        with requests.Session() as session:
            exchange(session, self.given.target, self.question(), self.environment)
