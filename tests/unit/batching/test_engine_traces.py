"""Random traces of add, abort and step: blocks are conserved, nobody starves, no answer depends on it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batching.engine import Engine, EngineConfig, QueueFull
from batching.engine.plan import plan
from batching.engine.sequence import Status
from batching.replica.program import SampledProgram
from common.wire import FinishReason, GenerateRequest, Sampling
from tests.support.engines import Answer, collect, expected_ids, make_request
from tests.support.fake_program import STOP_TOKEN, ByteDetokenizer, FakeProgram

SAMPLINGS = (
    Sampling(temperature=0.0),
    Sampling(temperature=0.8, top_p=0.9, seed=7),
    Sampling(temperature=1.2, top_k=12, seed=8),
    Sampling(temperature=0.6, repetition_penalty=1.3, presence_penalty=0.5, seed=9),
)

requests = st.builds(
    dict,
    prompt=st.integers(1, 30).map(lambda n: bytes(range(40, 40 + n))),
    max_tokens=st.one_of(st.integers(1, 24), st.just(24)),
    n=st.sampled_from([1, 1, 1, 2, 3]),
    sampling=st.sampled_from(SAMPLINGS),
    stop_ids=st.sampled_from([(), (STOP_TOKEN,), tuple(range(100, 127))]),
    min_tokens=st.just(0),
    priority=st.sampled_from([0, 0, 1]),
)
actions = st.lists(
    st.one_of(
        requests,
        requests,
        st.tuples(st.just("abort"), st.integers(0, 30)),
        st.tuples(st.just("step"), st.integers(1, 6)),
    ),
    max_size=25,
)


@dataclass
class Run:
    """An engine under a trace, with everything it was asked and all it said."""

    engine: Engine
    budget: int
    asked: dict[str, GenerateRequest] = field(default_factory=dict)
    aborted: set[str] = field(default_factory=set)
    answers: dict[str, Answer] = field(default_factory=dict)

    def add(self, fields: dict[str, object]) -> None:
        request_id, priority = f"r{len(self.asked)}", fields["priority"]
        changes = {k: v for k, v in fields.items() if k not in ("prompt", "max_tokens", "priority")}
        request = make_request(request_id, fields["prompt"], fields["max_tokens"], **changes)
        try:
            self.engine.submit(request, random_seed=1, priority=priority)
        except QueueFull:
            return
        self.asked[request_id] = request

    def abort(self, number: int) -> None:
        request_id = f"r{number}"
        events = self.engine.abort(request_id)
        if events:
            self.aborted.add(request_id)
        collect(events, self.answers)
        self.check()

    def step(self) -> None:
        chosen = plan(self.engine._state)
        decoding = [s.number for s in self.engine._state.running.values() if s.remaining == 1]
        assert chosen.token_count <= self.budget
        scheduled = {c.number for c in chosen.chunks}
        assert set(decoding) <= scheduled | set(chosen.preempted)
        owners = [self.engine._state.sequences[n].owner.request.request_id for n in scheduled]
        assert not self.aborted & set(owners)
        collect(self.engine.step(), self.answers)
        self.check()

    def check(self) -> None:
        """The invariants between two steps."""
        state = self.engine._state
        pool = state.pool
        tables = Counter(b for s in state.running.values() for b in s.blocks)
        assert all(pool.references(b) == tables[b] for b in range(1, pool.count + 1))
        assert pool.free_count + len(tables) == pool.count
        assert len(state.running) <= state.config.max_sequences
        assert len(state.running) + len(state.waiting) == len(state.sequences)
        for s in state.running.values():
            writable = list(s.blocks)[s.computed // pool.block_size :]
            assert all(tables[b] == 1 for b in writable), "two sequences may write one block"
        ranks = [s.rank for s in state.waiting]
        assert ranks == sorted(ranks)
        assert all(not s.blocks and s.status is Status.WAITING for s in state.waiting)

    def finish(self) -> None:
        """Step until nothing is left; each step moves the first in rank, so their work bounds the steps."""
        work = sum(len(s.tokens) + s.owner.request.max_tokens for s in self.engine._state.sequences.values())
        for _ in range(work + 1):
            if not self.engine.has_work:
                return
            self.step()
        raise AssertionError("a sequence starves")


def play(trace: list[object], kv_blocks: int, budget: int, sequences: int) -> Run:
    program = FakeProgram(kv_blocks, max_batched_tokens=budget, max_sequences=sequences)
    config = EngineConfig(kv_blocks, sequences, budget, max_waiting=20)
    run = Run(Engine(config, SampledProgram(program, lambda: 0.0), ByteDetokenizer()), budget)
    for action in trace:
        if isinstance(action, dict):
            run.add(action)
        elif action[0] == "abort":
            run.abort(action[1])
        else:
            for _ in range(action[1]):
                run.step()
    run.finish()
    return run


@pytest.mark.pitfall("S8")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    trace=actions,
    kv_blocks=st.integers(14, 18),
    sequences=st.sampled_from([1, 3, 6, 8]),
    extra_budget=st.integers(0, 40),
)
def test_no_trace_changes_an_answer_or_loses_a_block(trace, kv_blocks, sequences, extra_budget):
    run = play(trace, kv_blocks, sequences + extra_budget, sequences)
    assert run.engine.stats().kv_blocks_used == 0
    for request_id, request in run.asked.items():
        got = run.answers[request_id]
        assert len(got.ended) == 1
        assert sorted(f.index for f in got.finished) == list(range(request.n))
        is_aborted = request_id in run.aborted
        for f in got.finished:
            expected, made = expected_ids(request, f.index), got.ids(f.index)
            assert made == (
                expected[: len(made)] if is_aborted and f.reason is FinishReason.ABORT else expected
            )
            assert f.completion_tokens == len(made)


@pytest.mark.pitfall("S8")
def test_sixteen_mixed_requests_answer_as_if_alone():
    rng = random.Random(5)
    trace: list[object] = []
    for number in range(16):
        trace.append(
            {
                "prompt": rng.randbytes(rng.randrange(1, 30)),
                "max_tokens": rng.randrange(10, 40),
                "sampling": SAMPLINGS[number % len(SAMPLINGS)],
                "priority": 0,
            }
        )
        trace.append(("step", rng.randrange(1, 4)))
        trace += [("abort", number - 2)] if number % 5 == 4 else []
    run = play(trace, kv_blocks=18, budget=24, sequences=6)
    assert run.engine.stats().preemptions > 0
    kept = [r for r in run.asked.values() if r.request_id not in run.aborted]
    assert len(kept) >= 12
    assert all(run.answers[r.request_id].ids() == expected_ids(r) for r in kept)
    assert run.engine.stats().kv_blocks_used == 0


def test_siblings_that_share_blocks_survive_preemption():
    trace: list[object] = [
        {"prompt": bytes(range(40, 56)), "max_tokens": 20, "n": 3, "sampling": SAMPLINGS[1], "priority": 0},
        {"prompt": bytes(range(40, 50)), "max_tokens": 20, "sampling": SAMPLINGS[2], "priority": 0},
    ]
    run = play(trace, kv_blocks=14, budget=24, sequences=6)
    assert run.engine.stats().preemptions > 1
    assert [run.answers["r0"].ids(i) for i in range(3)] == [
        expected_ids(run.asked["r0"], i) for i in range(3)
    ]
    assert run.answers["r1"].ids() == expected_ids(run.asked["r1"])
