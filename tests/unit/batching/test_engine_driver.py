"""The engine's thread: what goes in, what comes out, and what happens when either is too much."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from batching.replica.book import RequestBook
from batching.replica.driver import DriverLimits, EngineDriver
from batching.replica.program import HostTime
from batching.replica.stream import FrameStream
from common.errors import Overloaded
from common.wire import Ended, Failed, Frame, GenerateRequest
from tests.support.engines import Answer, expected_ids, make_engine, make_request


@dataclass
class Inbox:
    """A reader: collects frames until the last one."""

    frames: list[Frame] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def take(self, stream: FrameStream) -> None:
        self.frames += stream.take()
        if self.frames and isinstance(self.frames[-1], Ended | Failed):
            self.is_over.set()

    def answer(self) -> Answer:
        assert self.is_over.wait(20), "the stream has no end"
        answer = Answer()
        for frame in self.frames:
            answer.add(frame)
        return answer


@dataclass
class Bench:
    """A driver over the fake program. Its reader takes frames at once, on the engine's thread."""

    driver: EngineDriver
    book: RequestBook
    inboxes: dict[int, Inbox] = field(default_factory=dict)

    def submit(self, request: GenerateRequest) -> tuple[FrameStream, Inbox]:
        inbox = Inbox()
        stream = self.driver.submit(request, lambda: inbox.take(stream))
        return stream, inbox


def make_bench(inbox: int = 64, buffered_tokens: int = 1000) -> Bench:
    book = RequestBook(lambda: 0.0)
    driver = EngineDriver(
        make_engine(waiting=4),
        book,
        HostTime(lambda: 0.0),
        DriverLimits(inbox, buffered_tokens),
        clock=lambda: 0.0,
        random_seed=lambda: 1,
        notify=lambda streams: [stream.wake() for stream in streams],
    )
    return Bench(driver, book)


@contextmanager
def running(bench: Bench) -> Iterator[None]:
    thread = threading.Thread(target=bench.driver.run)
    thread.start()
    try:
        yield
    finally:
        bench.driver.stop()
        thread.join(20)


def test_answers_come_out_of_the_stream():
    bench, request = make_bench(), make_request("r", "hello", 9)
    _, inbox = bench.submit(request)
    with running(bench):
        assert inbox.answer().ids() == expected_ids(request)
    assert bench.driver.is_idle
    assert bench.driver.step_age_s() is None


def test_a_refusal_comes_out_of_the_stream_and_leaves_no_counts():
    bench = make_bench()
    _, inbox = bench.submit(make_request("r", (), 9))
    with running(bench):
        assert [f.code for f in inbox.answer().failed] == ["invalid_request"]
    assert bench.book.reports() == ((), ())


def test_a_full_queue_is_said_to_be_full():
    bench = make_bench()
    bench.submit(make_request("a", "hello", 200, n=4))
    _, inbox = bench.submit(make_request("b", "hello", 2))
    with running(bench):
        assert [f.code for f in inbox.answer().failed] == ["queue_full"]
        bench.driver.fail_all("over", "the test is over")


def test_the_way_in_is_bounded():
    bench = make_bench(inbox=2)
    bench.submit(make_request("a", "hello"))
    bench.submit(make_request("b", "hello"))
    with pytest.raises(Overloaded):
        bench.submit(make_request("c", "hello"))


def test_a_second_request_of_the_same_id_is_refused_and_the_first_goes_on():
    bench, request = make_bench(), make_request("r", "hello", 9)
    _, first = bench.submit(request)
    stream, second = bench.submit(request)
    bench.driver.abort("r", stream)
    with running(bench):
        assert [f.code for f in second.answer().failed] == ["duplicate_request"]
        assert first.answer().ids() == expected_ids(request)


def test_a_reader_that_takes_nothing_is_cut_off():
    bench = make_bench(buffered_tokens=5)
    woken = threading.Event()
    stream = bench.driver.submit(make_request("r", "hello", 200), woken.set)
    with running(bench):
        while not stream.is_over:
            assert woken.wait(20)
    frames = stream.take()
    assert frames[-1] == Failed(
        "slow_reader", "the reader fell too far behind, and the request was aborted", retryable=False
    )
    assert bench.book.reports()[1][0].completion_tokens == 6


def test_only_what_has_not_begun_is_refused_for_a_drain():
    bench, request = make_bench(), make_request("begun", "hello", 60)
    _, begun = bench.submit(request)
    with running(bench):
        while not bench.driver.latest.steps:
            pass
        bench.driver.refuse_waiting()
        assert begun.answer().ids() == expected_ids(request)
    _, late = bench.submit(make_request("late", "hello", 5))
    bench.driver.refuse_waiting()
    again = threading.Thread(target=bench.driver.run)
    again.start()
    again.join(20)
    assert [(f.code, f.retryable) for f in late.answer().failed] == [("draining", True)]


def test_failing_all_is_retryable_where_nothing_was_generated():
    bench = make_bench()
    _, inbox = bench.submit(make_request("r", "hello", 5))
    bench.driver.fail_all("replica_stopping", "going")
    with running(bench):
        assert [(f.code, f.retryable) for f in inbox.answer().failed] == [("replica_stopping", True)]
