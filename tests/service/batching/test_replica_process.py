"""The replica as a child process: real sockets, signals and disconnects, over a program without weights."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from common.wire import SECRET_HEADER, Delta, FinishReason, ReplicaState, Sampling, Started
from tests.support.engines import Answer, expected_ids, make_request
from tests.support.eventually import eventually
from tests.support.fake_program import CRASH_TOKEN, HANG_TOKEN, NAN_TOKEN
from tests.support.replica_client import SECRET, RunningReplica, replica

SAMPLED = Sampling(temperature=0.9, top_p=0.9, seed=5)
ENDLESS = 3000


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningReplica]:
    with replica() as running:
        yield running


@pytest.mark.pitfall("Z3")
def test_the_ready_line_comes_after_a_forward_pass_and_names_the_phases(shared):
    assert shared.ready.state is ReplicaState.READY
    assert [name for name, _ in shared.ready.phases_s] == ["import", "map", "warmup"]
    assert all(seconds > 0 for _, seconds in shared.ready.phases_s)
    assert shared.ready.kv_blocks_total == 256


def test_only_its_user_may_open_the_socket(shared):
    assert stat.S_IMODE(os.stat(shared.socket).st_mode) == 0o600


def test_an_answer_comes_as_frames(shared):
    request = make_request("frames", "hello", 12, sampling=SAMPLED, n=2, logprobs=1)
    answer = shared.generate(request)
    assert isinstance(answer.frames[0], Started)
    assert answer.started[0].queue_s > 0
    assert [answer.ids(i) for i in range(2)] == [expected_ids(request, i) for i in range(2)]
    assert answer.ended[0].completion_tokens == 24
    assert len([p for d in answer.deltas for p in d.logprobs]) == 24


def test_an_unseeded_request_is_random(shared):
    request = make_request("random", "hello", 12, sampling=Sampling(temperature=1.0))
    first, second = shared.generate(request), shared.generate(replace(request, request_id="again"))
    assert first.ids() != second.ids()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/generate"),
        ("GET", "/stats"),
        ("POST", "/stats/ack"),
        ("POST", "/drain"),
        ("GET", "/health/ready"),
        ("GET", "/anything"),
    ],
)
@pytest.mark.parametrize("secret", [None, "", SECRET + "x", "wrong"])
def test_every_route_wants_the_secret(shared, method, path, secret):
    headers = {} if secret is None else {SECRET_HEADER: secret}
    transport = httpx.HTTPTransport(uds=str(shared.socket))
    with httpx.Client(transport=transport, base_url="http://replica", headers=headers) as stranger:
        assert stranger.request(method, path).status_code == 401
    assert shared.stats().state is ReplicaState.READY


def test_health_says_ready(shared):
    response = shared.client.get("/health/ready")
    assert (response.status_code, response.json()) == (200, {"state": "ready"})


def test_unknown_routes_and_methods_are_told_apart(shared):
    assert shared.client.get("/nothing").status_code == 404
    assert shared.client.get("/generate").status_code == 405


@pytest.mark.pitfall("S10")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"request_id": "r"}',
        b"[" * 100_000,
        json.dumps({"prompt_ids": ["a"]}).encode(),
    ],
)
def test_what_is_no_request_gets_400_and_the_next_request_works(shared, body):
    response = shared.client.post("/generate", content=body)
    assert (response.status_code, response.json()["t"]) == (400, "failed")
    assert len(shared.generate(make_request("next", "hello", 2)).ids()) == 2


def test_a_prompt_that_cannot_be_served_is_refused_in_the_stream(shared):
    answer = shared.generate(make_request("long", bytes(4097), 2))
    assert [(f.code, f.retryable) for f in answer.failed] == [("context_length_exceeded", False)]


@pytest.mark.pitfall("S11")
def test_nan_fails_one_request_only(shared):
    assert shared.generate(make_request("nan", (65, NAN_TOKEN), 4)).failed[0].code == "invalid_logits"
    assert len(shared.generate(make_request("fine", "hello", 2)).ids()) == 2


def test_mixed_requests_at_once_answer_as_if_alone_and_leave_no_block_in_use(shared):
    requests = [
        make_request(
            f"mixed-{i}", bytes(range(33, 40 + 5 * i)), 10 + 2 * i, sampling=replace(SAMPLED, seed=i)
        )
        for i in range(16)
    ]
    answers: dict[str, Answer] = {}

    def ask(number: int) -> None:
        request = requests[number]
        if number % 5 == 4:
            with shared.stream(request) as frames:
                next(frames)
        else:
            answers[request.request_id] = shared.generate(request)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 13
    assert all(answers[r.request_id].ids() == expected_ids(r) for r in requests if r.request_id in answers)
    assert eventually(lambda: shared.stats().kv_blocks_used == 0 and shared.stats().running == 0)


def test_counts_of_ended_requests_stay_until_acknowledged(shared):
    request = make_request("counted", "hello", 7)
    shared.generate(request)
    ended = {c.request_id: c for c in shared.stats().ended}
    assert (ended["counted"].prompt_tokens, ended["counted"].completion_tokens) == (5, 7)
    acknowledged = {"request_ids": ["counted", "unknown"]}
    assert shared.client.post("/stats/ack", json=acknowledged).status_code == 200
    assert "counted" not in {c.request_id for c in shared.stats().ended}
    assert shared.client.post("/stats/ack", content=b"[]").status_code == 400


@pytest.mark.pitfall("S5")
def test_a_reader_that_goes_away_is_aborted_and_its_tokens_stay_counted(shared):
    aborts = shared.stats().aborts
    with shared.stream(make_request("gone", "hello", ENDLESS)) as frames:
        seen = [next(frames) for _ in range(6)]
    assert eventually(lambda: shared.stats().aborts == aborts + 1)
    assert eventually(lambda: shared.stats().kv_blocks_used == 0)
    (counts,) = [c for c in shared.stats().ended if c.request_id == "gone"]
    assert seen[-1].completion_tokens <= counts.completion_tokens < ENDLESS


@pytest.mark.pitfall("S5")
def test_a_reader_that_goes_away_before_its_turn_is_aborted():
    with replica(kv_blocks=300) as running:
        with running.stream(make_request("first", "hello", ENDLESS, n=8)) as first:
            next(first)
            with running.stream(make_request("queued", "hello", 5)):
                assert eventually(lambda: running.stats().waiting == 1)
            assert eventually(lambda: running.stats().waiting == 0)
        assert eventually(lambda: running.stats().running == 0)
        assert [c.request_id for c in running.stats().ended] == ["first"]


@pytest.mark.pitfall("Z1")
def test_idle_time_counts_from_the_end_of_the_last_request(shared):
    with shared.stream(make_request("busy", "hello", ENDLESS)) as frames:
        next(frames)
        assert shared.stats().idle_s == 0.0
        assert [c.request_id for c in shared.stats().open] == ["busy"]
    assert eventually(lambda: shared.stats().idle_s > 0)


def post_and_never_read(running: RunningReplica, body: bytes) -> socket.socket:
    """A connection whose reader sleeps: the kernel's small buffer, and nobody takes from it."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(str(running.socket))
    head = f"POST /generate HTTP/1.1\r\nhost: r\r\n{SECRET_HEADER}: {SECRET}\r\n"
    connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    return connection


def test_a_slow_reader_is_cut_off_and_its_neighbours_are_not():
    neighbour = make_request("neighbour", "hello", 100)
    slow = make_request("slow", "hello", ENDLESS, logprobs=20)
    with (
        replica("--max-buffered-tokens=2000", kv_blocks=300, step_s=0.0) as running,
        post_and_never_read(running, slow.to_json().encode()) as connection,
    ):
        assert eventually(
            lambda: running.stats().running + running.stats().aborts >= 1
        )  # it may be over already
        assert running.generate(neighbour).ids() == expected_ids(neighbour)
        assert eventually(lambda: running.stats().aborts == 1)
        connection.settimeout(10)
        assert b'"t":"failed","code":"slow_reader"' in read_all(connection)
        (counts,) = [c for c in running.stats().ended if c.request_id == "slow"]
        assert counts.completion_tokens < ENDLESS


def read_all(connection: socket.socket) -> bytes:
    """Everything until the chunk that ends the body."""
    received = b""
    while not received.endswith(b"0\r\n\r\n"):
        part = connection.recv(1 << 16)
        assert part, "closed before its end"
        received += part
    return received


def test_a_reader_that_takes_nothing_for_too_long_is_aborted():
    stalled = make_request("stalled", "hello", ENDLESS, logprobs=20)
    with (
        replica(
            "--send-timeout-s=0.2", "--max-buffered-tokens=1000000", kv_blocks=300, step_s=0.0
        ) as running,
        post_and_never_read(running, stalled.to_json().encode()),
    ):
        assert eventually(lambda: running.stats().aborts == 1)
        assert "reader_stalled" in running.log()


def test_tokens_that_wait_for_the_reader_share_a_frame():
    request = make_request("late", "hello", 1500, logprobs=4)
    with replica("--max-buffered-tokens=100000", kv_blocks=300, step_s=0.0) as running:
        with running.stream(request) as frames:
            first = next(frames)
            assert eventually(lambda: running.stats().running == 0)
            rest = list(frames)
        deltas = [f for f in rest if isinstance(f, Delta)]
        assert isinstance(first, Started)
        assert len(deltas) < 1500
        assert [i for d in deltas for i in d.ids] == expected_ids(request)
        assert rest[-1].completion_tokens == 1500


def test_sigterm_finishes_what_runs_and_refuses_what_is_new():
    request = make_request("running", "hello", 200)
    with replica(step_s=0.005) as running:
        answer = Answer()
        with running.stream(request) as frames:
            answer.add(next(frames))
            running.terminate()
            assert eventually(lambda: running.stats().state is ReplicaState.DRAINING)
            refused = running.generate(make_request("new", "hello", 2))
            for frame in frames:
                answer.add(frame)
        assert [(f.code, f.retryable) for f in refused.failed] == [("draining", True)]
        assert answer.ids() == expected_ids(request)
        assert running.wait() == 0
        assert not running.socket.exists()


def test_a_drain_has_a_deadline():
    with replica("--drain-s=0.3", kv_blocks=300) as running:
        with running.stream(make_request("endless", "hello", ENDLESS)) as frames:
            next(frames)
            running.terminate()
            last = list(frames)[-1]
        assert (last.code, last.retryable) == ("replica_stopping", False)
        assert running.wait() == 0


def test_drain_sends_away_what_has_not_begun():
    with replica(kv_blocks=300) as running, running.stream(make_request("first", "hello", 300, n=8)) as first:
        next(first)
        with running.stream(make_request("queued", "hello", 5)) as queued:
            assert eventually(lambda: running.stats().waiting == 1)
            assert running.client.post("/drain").status_code == 200
            assert [(f.code, f.retryable) for f in queued] == [("draining", True)]
        assert running.client.get("/health/ready").status_code == 503
        assert list(first)[-1].completion_tokens == 8 * 300


def test_sigterm_while_idle_ends_the_process_at_once():
    with replica() as running:
        running.terminate()
        assert running.wait(5.0) == 0


def test_kill_breaks_the_stream_before_its_last_frame():
    with replica() as running, running.stream(make_request("killed", "hello", ENDLESS)) as frames:
        seen = [next(frames) for _ in range(5)]
        running.kill()
        with pytest.raises(httpx.TransportError):
            seen += list(frames)
        assert all(isinstance(f, Started | Delta) for f in seen)
        assert running.wait() == -signal.SIGKILL


def test_a_step_that_hangs_ends_the_process():
    with replica("--step-timeout-s=0.4") as running:
        hanging = make_request("hang", (65, HANG_TOKEN), 4)
        with running.stream(hanging) as frames, pytest.raises(httpx.TransportError):
            list(frames)
        assert running.wait() == 70
        assert "step_stuck" in running.log()


def test_a_program_that_crashes_fails_every_request_and_ends_the_process():
    with replica(step_s=0.01) as running:
        with running.stream(make_request("victim", "hello", ENDLESS)) as victim:
            list(zip(range(3), victim, strict=False))
            crashed = running.generate(make_request("crash", (65, CRASH_TOKEN), 4))
            last = list(victim)[-1]
        assert [(f.code, f.retryable) for f in crashed.failed] == [("replica_failed", True)]
        assert (last.code, last.retryable) == ("replica_failed", False)
        assert running.wait() == 1
        assert "engine_failed" in running.log()


@pytest.mark.pitfall("Z3")
def test_a_model_that_does_not_load_never_becomes_ready():
    with replica(is_broken=True) as running:
        assert running.ready is None
        assert running.wait() == 1
        assert "the artifact has no manifest" in running.log()


def test_a_stop_reason_and_its_match_reach_the_reader(shared):
    request = make_request("stop", "hello", 40)
    text = shared.generate(request).text()
    stopped = shared.generate(replace(request, request_id="stop-2", stop=(text[5:8],)))
    assert stopped.text() == text[: text.index(text[5:8])]
    assert stopped.reasons == [FinishReason.STOP]
    assert stopped.finished[0].stop_match == text[5:8]
