"""The replica's parts by themselves: buffers, books, parsing, settings, timing, imports."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batching.replica.book import RequestBook
from batching.replica.parse import parse_request
from batching.replica.program import HostTime
from batching.replica.settings import SECRET_VARIABLE, read_settings
from batching.replica.stream import FrameStream, coalesce
from common.errors import InvalidInput
from common.wire import Delta, Ended, Failed, Finished, FinishReason, Started, TokenLogprob
from tests.support.engines import make_request

ROOT = Path(__file__).resolve().parents[3]
HEAVY = (
    "torch",
    "triton",
    "egglog",
    "transformers",
    "sqlalchemy",
    "boto3",
    "pydantic",
    "fastapi",
    "structlog",
)


def token(index: int, count: int, text: str = "x") -> Delta:
    return Delta(index, text, (count,), count, (TokenLogprob(count, text, -1.0, ((1, "a", -2.0),)),))


def test_waiting_tokens_of_a_sequence_become_one_frame():
    frames = [Started(3), token(0, 1, "a"), token(1, 1, "b"), token(0, 2, "c"), Ended(3, 3)]
    joined = coalesce(frames)
    assert [type(f) for f in joined] == [Started, Delta, Delta, Ended]
    assert (joined[1].text, joined[1].ids, joined[1].completion_tokens) == ("ac", (1, 2), 2)
    assert [p.id for p in joined[1].logprobs] == [1, 2]


def test_the_scores_of_a_prompt_stay_a_frame_of_their_own():
    frames = [Delta(0, "", (7, 8), 0), token(0, 1), token(0, 2)]
    assert [f.completion_tokens for f in coalesce(frames)] == [0, 2]


@given(st.lists(st.tuples(st.integers(0, 2), st.text(max_size=2)), max_size=20))
def test_joining_loses_nothing(pairs):
    counts = dict.fromkeys(range(3), 0)
    frames = []
    for index, text in pairs:
        counts[index] += 1
        frames.append(token(index, counts[index], text))
    frames += [Finished(i, FinishReason.LENGTH, counts[i]) for i in range(3)]
    joined = coalesce(frames)

    def seen(source, index):
        mine = [f for f in source if f.index == index]
        deltas = [f for f in mine if isinstance(f, Delta)]
        return "".join(d.text for d in deltas), [i for d in deltas for i in d.ids], mine[-1]

    assert all(seen(joined, i) == seen(frames, i) for i in range(3))
    assert len(joined) <= 6


def test_a_stream_says_when_its_reader_is_too_far_behind():
    stream = FrameStream(4, lambda: None)
    assert stream.put([token(0, 1), token(0, 2)])
    assert not stream.put([token(0, 3)])
    stream.take()
    assert stream.put([token(0, 4)])


def test_nothing_follows_the_last_frame():
    stream = FrameStream(4, lambda: None)
    stream.put([Failed("a", "first")])
    stream.put([Failed("b", "second")])
    assert stream.is_over
    assert [f.code for f in stream.take()] == ["a"]


def make_book(now: list[float]) -> RequestBook:
    return RequestBook(lambda: now[0])


def test_the_book_follows_the_cumulative_counts():
    book = make_book([0.0])
    book.begin(make_request("r", "hello", n=2))
    assert book.reports()[0][0].prompt_tokens == 0
    for frame in (Started(5, 2), token(0, 1), token(1, 1), token(0, 2)):
        book.note("r", frame)
    (counts,), ended = book.reports()
    assert (counts.prompt_tokens, counts.completion_tokens, counts.cached_tokens, ended) == (5, 3, 2, ())
    assert book.has_generated("r")
    book.end("r")
    assert book.reports() == ((), (counts,))
    book.acknowledge(["r"])
    assert book.reports() == ((), ())


def test_a_request_without_work_leaves_nothing_to_acknowledge():
    book = make_book([0.0])
    book.begin(make_request("r", "hello"))
    book.end("r")
    assert book.reports() == ((), ())


def test_the_books_memory_is_bounded(caplog):
    book = RequestBook(lambda: 0.0, kept=3, reported=2)
    for i in range(5):
        book.begin(make_request(f"r{i}", "hello"))
        book.note(f"r{i}", Started(5))
        book.end(f"r{i}")
    assert [c.request_id for c in book.reports()[1]] == ["r2", "r3"]
    book.acknowledge(["r2", "r3"])
    assert [c.request_id for c in book.reports()[1]] == ["r4"]
    assert "ended_counts_dropped" in caplog.text


def test_idle_time_is_zero_while_anything_is_open():
    now = [10.0]
    book = make_book(now)
    now[0] = 15.0
    assert book.idle_s() == 5.0
    book.begin(make_request("r", "hello"))
    now[0] = 20.0
    assert book.idle_s() == 0.0
    book.end("r")
    now[0] = 21.5
    assert book.idle_s() == 1.5


def test_a_request_survives_its_way_over_the_wire():
    request = make_request("r", "hello", 5, stop=("a",), stop_ids=(3,), logprobs=2)
    request = replace(request, sampling=replace(request.sampling, logit_bias=((4, 1.5),), seed=-9))
    assert parse_request(request.to_json().encode()) == request


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("request_id", 5),
        ("prompt_ids", ["a"]),
        ("prompt_ids", [True]),
        ("prompt_ids", [1.0]),
        ("prompt_ids", "ab"),
        ("prompt_ids", None),
        ("stop", [1]),
        ("stop_ids", [None]),
        ("max_tokens", "5"),
        ("max_tokens", True),
        ("n", 1.5),
        ("logprobs", "all"),
        ("echo", 1),
        ("sampling.temperature", "hot"),
        ("sampling.temperature", 10**400),
        ("sampling.top_k", 0.01),
        ("sampling.seed", 1.5),
        ("sampling.logit_bias", [["a", 1]]),
        ("sampling.logit_bias", [[1]]),
        ("sampling.unknown", 1),
        ("unknown", 1),
    ],
)
def test_a_field_of_the_wrong_type_is_refused(path, value):
    raw = asdict(make_request("r", "hello"))
    *owner, name = path.split(".")
    (raw[owner[0]] if owner else raw)[name] = value
    with pytest.raises(InvalidInput):
        parse_request(json.dumps(raw).encode())


ARGUMENTS = [
    *("--artifact", "a", "--tokenizer", "t", "--socket", "s", "--replica-id", "rep_1"),
    *("--kv-blocks", "64", "--max-sequences", "8", "--max-batched-tokens", "128", "--ready-fd", "7"),
]


def test_settings_come_from_options_and_the_secret_from_the_environment():
    settings = read_settings([*ARGUMENTS, "--drain-s", "3"], {SECRET_VARIABLE: "hidden"})
    assert (settings.kv_blocks, settings.ready_fd, settings.drain_s) == (64, 7, 3.0)
    assert settings.secret == "hidden"
    assert "hidden" not in repr(settings)


def test_a_missing_secret_is_refused():
    with pytest.raises(InvalidInput, match=SECRET_VARIABLE):
        read_settings(ARGUMENTS, {})


def test_host_time_leaves_idle_time_out():
    now = [0.0]
    host = HostTime(lambda: now[0])

    def step(start: float, end: float) -> None:
        now[0] = start
        host.enter()
        now[0] = end
        host.leave()

    step(0.0, 1.0)
    step(1.5, 2.0)
    host.pause()
    step(9.0, 10.0)
    assert (host.total_s, host.count) == (0.5, 1)


def test_the_process_imports_nothing_heavy():
    modules = "batching.replica.main, batching.prompt, compiler.runtime"
    code = f"import sys, {modules}; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_misuse_exits_with_2():
    done = subprocess.run(
        [sys.executable, "-m", "batching.replica.main", *ARGUMENTS],
        cwd=ROOT,
        env={},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert SECRET_VARIABLE.encode() in done.stderr
