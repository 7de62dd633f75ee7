"""The engine inside a process, and the standard workloads on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from batching.engine import PoolExceeded
from batching.replica.loading import Loaded, ModelSource
from batching.replica.local import GenerationFailed, LocalEngine
from batching.replica.workloads import (
    WORKLOADS,
    StartRow,
    WorkloadRow,
    as_json,
    random_prompts,
    run_workloads,
)
from common.wire import FinishReason, Sampling
from tests.support.engines import expected_ids
from tests.support.fake_program import NAN_TOKEN, ByteDetokenizer, FakeProgram

NOWHERE = Path("nowhere")


class Ticks:
    """A clock that moves by a millisecond whenever it is read."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> float:
        self.count += 1
        return self.count / 1000


def load_fake(source: ModelSource) -> Loaded:
    return Loaded(FakeProgram(source.kv_blocks, max_sequences=8), ByteDetokenizer())


def load_bytes_only(source: ModelSource) -> Loaded:
    """Workloads draw prompts from the whole vocabulary, so it must not hold the tokens that hang or crash."""
    loaded = load_fake(source)
    loaded.program.vocab_size = 256
    return loaded


def open_engine(kv_blocks: int = 64) -> LocalEngine:
    return LocalEngine(NOWHERE, NOWHERE, kv_blocks=kv_blocks, load=load_fake, clock=Ticks())


def test_text_streams_and_joins_to_the_whole_answer():
    engine = open_engine()
    pieces = list(engine.generate(b"hello", max_tokens=10, stop_ids=()))
    (completion,) = engine.complete([engine.request(b"hello", max_tokens=10, stop_ids=())])[0]
    assert len(pieces) == 10
    assert "".join(pieces) == completion.text
    assert completion.reason is FinishReason.LENGTH


def test_many_requests_run_together_and_keep_their_places():
    engine = open_engine()
    sampling = Sampling(temperature=0.9, seed=4)
    requests = [
        engine.request(f"prompt {i}".encode(), max_tokens=5 + i, sampling=sampling, n=1 + i % 2, stop_ids=())
        for i in range(6)
    ]
    answers = engine.complete(requests)
    for request, completions in zip(requests, answers, strict=True):
        assert [c.ids for c in completions] == [expected_ids(request, i) for i in range(request.n)]


def test_closing_a_stream_aborts_it():
    engine = open_engine()
    pieces = engine.generate(b"hello", max_tokens=100, stop_ids=())
    next(pieces)
    pieces.close()
    assert (engine.stats().running, engine.stats().kv_blocks_used, engine.stats().aborts) == (0, 0, 1)


def test_a_broken_answer_raises_and_leaves_nothing_behind():
    engine = open_engine()
    bad = engine.request((65, NAN_TOKEN), max_tokens=4, stop_ids=())
    good = engine.request(b"hello", max_tokens=4, stop_ids=())
    with pytest.raises(GenerationFailed):
        engine.complete([good, bad])
    assert engine.stats().kv_blocks_used == 0
    assert engine.complete([good])[0][0].ids == expected_ids(good)


def test_a_refused_request_takes_the_others_with_it():
    engine = open_engine(kv_blocks=8)
    good = engine.request(b"hello", max_tokens=4, stop_ids=())
    with pytest.raises(PoolExceeded):
        engine.complete([good, engine.request(bytes(60), max_tokens=4, stop_ids=())])
    assert engine.stats().waiting == 0


def test_workload_prompts_are_the_same_in_every_run():
    assert random_prompts(2, 3) == random_prompts(2, 3)
    assert random_prompts(1, 4)[0][0] == 27_608
    assert len(random_prompts(8, 128)) == 8


def test_workload_prompts_fit_a_small_vocabulary():
    assert max(random_prompts(1, 500, vocab_size=60)[0]) < 60


def test_each_workload_gives_a_row_with_the_figures_that_fit_it():
    engine = LocalEngine(NOWHERE, NOWHERE, kv_blocks=64, load=load_bytes_only, clock=Ticks())
    start, single, prefill, many = run_workloads(
        engine, workloads=((1, 12, 6), (1, 20, 1), (4, 12, 6)), repeats=1
    )
    assert isinstance(start, StartRow)
    assert start.start_to_first_token_s > 0
    assert set(as_json(many)) == {
        "engine",
        "sequences",
        "prompt",
        "out",
        "out_tok_s",
        "host_ms_between_steps",
    }
    assert {"prefill_tok_s", "decode_tok_s"} <= set(as_json(single))
    assert prefill.decode_tok_s is None
    assert isinstance(single, WorkloadRow)
    assert single.host_ms_between_steps > 0


def test_the_standard_workloads_are_those_of_the_peers():
    assert WORKLOADS == ((1, 128, 64), (1, 512, 1), (8, 128, 64), (32, 128, 64))
