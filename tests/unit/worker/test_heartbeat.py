"""When a claim counts as lost."""

from __future__ import annotations

import threading

from worker.heartbeat import Heartbeat


class Database:
    """Answers renewals; `error` makes them fail."""

    def __init__(self) -> None:
        self.is_ours = True
        self.error: Exception | None = None
        self.seen: list[int | None] = []
        self.renewed = threading.Event()

    def renew(self, rss_bytes: int | None) -> bool:
        self.seen.append(rss_bytes)
        self.renewed.set()
        if self.error is not None:
            raise self.error
        return self.is_ours


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_renewed_claim_is_kept() -> None:
    database = Database()
    heartbeat = Heartbeat(database.renew, 15.0, Time())
    heartbeat.beat()
    assert not heartbeat.is_lost


def test_a_refused_renewal_loses_the_claim() -> None:
    database = Database()
    database.is_ours = False
    heartbeat = Heartbeat(database.renew, 15.0, Time())
    heartbeat.beat()
    assert heartbeat.is_lost


def test_a_failing_database_is_borne_for_one_lease() -> None:
    database, time = Database(), Time()
    database.error = OSError("gone")
    heartbeat = Heartbeat(database.renew, 15.0, time)
    time.now = 14.0
    heartbeat.beat()
    assert not heartbeat.is_lost
    time.now = 15.0
    heartbeat.beat()
    assert heartbeat.is_lost


def test_a_good_renewal_starts_the_lease_anew() -> None:
    database, time = Database(), Time()
    heartbeat = Heartbeat(database.renew, 15.0, time)
    time.now = 10.0
    heartbeat.beat()
    database.error, time.now = OSError("gone"), 20.0
    heartbeat.beat()
    assert not heartbeat.is_lost


def test_memory_travels_with_the_renewal() -> None:
    database = Database()
    heartbeat = Heartbeat(database.renew, 15.0, Time())
    heartbeat.note_memory(77)
    heartbeat.beat()
    assert database.seen == [77]


def test_it_beats_by_itself_while_entered() -> None:
    database = Database()
    with Heartbeat(database.renew, 0.05, Time()):
        assert database.renewed.wait(10)
