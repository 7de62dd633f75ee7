"""Bad and unlucky requests: refused, aborted or failed alone, with neighbours and blocks unharmed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from batching.engine import (
    INVALID_LOGITS,
    DuplicateRequest,
    Engine,
    EngineConfig,
    InvalidRequest,
    PoolExceeded,
    QueueFull,
)
from batching.replica.program import SampledProgram
from common.errors import ContextLengthExceeded, InvalidInput
from common.wire import FinishReason, Sampling
from tests.support.engines import answer, collect, drain, expected_ids, make_engine, make_request
from tests.support.fake_program import NAN_TOKEN, VOCABULARY, ByteDetokenizer, FakeProgram

NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.pitfall("S6")
def test_a_prompt_larger_than_the_pool_is_refused_at_once_and_neighbours_proceed():
    engine = make_engine(kv_blocks=8)
    neighbour = make_request("n", "hello", 5)
    engine.submit(neighbour, random_seed=1)
    with pytest.raises(PoolExceeded, match="32"):
        engine.submit(make_request("big", bytes(32), 1), random_seed=1)
    assert drain(engine)["n"].ids() == expected_ids(neighbour)


def test_the_largest_prompt_that_fits_gets_its_token():
    got = answer(make_engine(kv_blocks=8), make_request("r", bytes(range(31)), 9))
    assert (len(got.ids()), got.reasons) == (1, [FinishReason.LENGTH])


def test_a_decode_that_outgrows_the_pool_ends_with_length():
    request = make_request("r", "hello", 200)
    got = answer(make_engine(kv_blocks=8), request)
    assert got.reasons == [FinishReason.LENGTH]
    assert got.ids() == expected_ids(replace(request, max_tokens=32 - 5))


def test_a_prompt_beyond_the_context_is_refused():
    with pytest.raises(ContextLengthExceeded):
        make_engine(kv_blocks=200).submit(make_request("r", bytes(256), 1), random_seed=1)


@pytest.mark.parametrize(
    "changes",
    [
        {"sampling": Sampling(temperature=NAN)},
        {"sampling": Sampling(temperature=INFINITY)},
        {"sampling": Sampling(temperature=-1.0)},
        {"sampling": Sampling(top_p=0.0)},
        {"sampling": Sampling(top_p=NAN)},
        {"sampling": Sampling(top_k=-1)},
        {"sampling": Sampling(top_k=0.01)},
        {"sampling": Sampling(min_p=1.5)},
        {"sampling": Sampling(presence_penalty=INFINITY)},
        {"sampling": Sampling(repetition_penalty=0.0)},
        {"sampling": Sampling(logit_bias=((VOCABULARY, 1.0),))},
        {"sampling": Sampling(logit_bias=((1, NAN),))},
        {"prompt_ids": ()},
        {"prompt_ids": (VOCABULARY,)},
        {"prompt_ids": (-1,)},
        {"stop_ids": (VOCABULARY,)},
        {"stop": ("",)},
        {"n": 0},
        {"max_tokens": 0},
        {"min_tokens": 9},
        {"logprobs": -1},
    ],
)
def test_a_bad_value_is_refused_and_the_next_request_works(changes):
    engine = make_engine()
    good = make_request("r", "hello", 4)
    with pytest.raises(InvalidRequest) as refused:
        engine.submit(replace(good, **changes), random_seed=1)
    assert refused.value.param is not None
    assert answer(engine, good).ids() == expected_ids(good)


def test_a_request_id_in_use_is_refused():
    engine = make_engine()
    engine.submit(make_request("r", "hello"), random_seed=1)
    with pytest.raises(DuplicateRequest):
        engine.submit(make_request("r", "other"), random_seed=1)


def test_the_queue_is_bounded():
    engine = make_engine(waiting=2)
    engine.submit(make_request("a", "hello", n=2), random_seed=1)
    with pytest.raises(QueueFull):
        engine.submit(make_request("b", "hello"), random_seed=1)
    engine.step()
    engine.submit(make_request("b", "hello"), random_seed=1)


@pytest.mark.parametrize(
    "config",
    [
        EngineConfig(0),
        EngineConfig(8, max_sequences=9),
        EngineConfig(8, max_sequences=8, max_batched_tokens=65),
        EngineConfig(8, max_sequences=8, max_batched_tokens=7),
    ],
)
def test_limits_that_the_program_cannot_meet_are_refused(config):
    with pytest.raises(InvalidInput):
        Engine(config, SampledProgram(FakeProgram(8), lambda: 0.0), ByteDetokenizer())


@pytest.mark.pitfall("S11")
def test_logits_that_are_not_numbers_fail_that_request_only():
    engine = make_engine()
    neighbours = [make_request(f"n{i}", f"hello {i}", 8) for i in range(3)]
    poisoned = make_request("bad", (*b"hello", NAN_TOKEN), 8, n=2)
    for request in (neighbours[0], poisoned, *neighbours[1:]):
        engine.submit(request, random_seed=1)
    answers = drain(engine)
    assert [f.code for f in answers["bad"].failed] == [INVALID_LOGITS]
    assert answers["bad"].ended == []
    assert [answers[n.request_id].ids() for n in neighbours] == [expected_ids(n) for n in neighbours]
    assert engine.stats().kv_blocks_used == 0


@pytest.mark.pitfall("S5")
def test_a_queued_request_is_aborted_without_having_started():
    engine = make_engine(sequences=1)
    engine.submit(make_request("first", "hello"), random_seed=1)
    engine.submit(make_request("queued", "hello"), random_seed=1)
    engine.step()
    got = collect(engine.abort("queued"))["queued"]
    assert got.reasons == [FinishReason.ABORT]
    assert (got.ended[0].prompt_tokens, got.ended[0].completion_tokens) == (0, 0)
    assert "queued" not in drain(engine)


@pytest.mark.pitfall("S5")
def test_a_prefilling_request_is_aborted_and_its_blocks_are_free():
    engine = make_engine(budget=8)
    engine.submit(make_request("r", bytes(60), 4), random_seed=1)
    engine.step()
    assert engine.stats().kv_blocks_used > 0
    got = collect(engine.abort("r"))["r"]
    assert got.ended[0].prompt_tokens == 60
    assert engine.stats().kv_blocks_used == 0
    assert not engine.has_work


@pytest.mark.pitfall("S5")
def test_a_decoding_request_is_aborted_with_the_tokens_it_made():
    engine = make_engine()
    engine.submit(make_request("r", "hello", 50, n=2), random_seed=1)
    answers = collect(event for _ in range(6) for event in engine.step())
    collect(engine.abort("r"), answers)
    made = len(answers["r"].ids(0)) + len(answers["r"].ids(1))
    assert answers["r"].ended[0].completion_tokens == made > 2
    assert engine.stats().kv_blocks_used == 0
    assert engine.stats().aborts == 1


def test_a_preempted_request_can_be_aborted():
    engine = make_engine(kv_blocks=6)
    engine.submit(make_request("a", "hello world", 13), random_seed=1)
    engine.submit(make_request("b", "hello", 18), random_seed=1)
    answers = {}
    while not engine.stats().preemptions:
        collect(engine.step(), answers)
    collect(engine.abort("b"), answers)
    drain(engine, answers)
    assert answers["b"].reasons == [FinishReason.ABORT]
    assert len(answers["a"].ids()) == 13
    assert engine.stats().kv_blocks_used == 0


def test_aborting_what_is_unknown_or_over_does_nothing():
    engine = make_engine()
    answer(engine, make_request("r", "hello", 2))
    assert engine.abort("r") == engine.abort("never") == ()
    assert engine.stats().aborts == 0
