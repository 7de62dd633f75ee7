"""Who runs when: budget, order, chunks, preemption, priorities."""

from __future__ import annotations

import copy

from batching.engine.plan import plan
from tests.support.engines import collect, drain, expected_ids, make_engine, make_request


def planned(engine):
    return plan(engine._state)


def fingerprint(engine) -> str:
    state = engine._state
    sequences = {
        n: (s.status, s.computed, list(s.blocks), list(s.tokens), s.scored)
        for n, s in state.sequences.items()
    }
    return repr(
        (sequences, list(state.running), [s.number for s in state.waiting], list(state.pool.free_blocks()))
    )


def busy_engine(kv_blocks: int = 12):
    engine = make_engine(kv_blocks=kv_blocks, budget=16)
    for i in range(5):
        engine.submit(make_request(f"r{i}", f"prompt number {i}", 20), random_seed=i)
    return engine


def test_planning_changes_nothing_and_repeats_itself():
    engine = busy_engine()
    for _ in range(40):
        before = fingerprint(engine)
        assert planned(engine) == planned(engine)
        assert fingerprint(engine) == before
        engine.step()
    assert engine.stats().preemptions > 0


def test_the_same_calls_give_the_same_events():
    def events():
        engine = busy_engine()
        return [event for _ in range(60) for event in engine.step()]

    assert events() == events()


def test_a_long_prompt_is_cut_to_the_budget():
    engine = make_engine(budget=16)
    engine.submit(make_request("r", bytes(50), 2), random_seed=1)
    counts = [planned(engine).token_count for _ in range(5) if engine.step() is not None]
    assert counts == [16, 16, 2, 1, 0]


def test_several_prompts_share_a_step():
    engine = make_engine(budget=16)
    for i in range(4):
        engine.submit(make_request(f"r{i}", bytes(6), 2), random_seed=1)
    assert [c.count for c in planned(engine).chunks] == [6, 6, 4]


def test_decodes_advance_every_step_while_a_long_prompt_is_computed():
    engine = make_engine(budget=8)
    engine.submit(make_request("talker", "hello", 40), random_seed=1)
    engine.step()
    engine.submit(make_request("reader", bytes(100), 1), random_seed=1)
    answers = {}
    for made in range(2, 14):
        collect(engine.step(), answers)
        assert answers["talker"].deltas[-1].completion_tokens == made
    assert answers["reader"].deltas == []


def test_arrivals_are_served_in_order():
    engine = make_engine(sequences=2, budget=64)
    for i in range(6):
        engine.submit(make_request(f"r{i}", "hello", 3), random_seed=1)
    finished = [e.request_id for _ in range(20) for e in engine.step() if type(e.frame).__name__ == "Ended"]
    assert finished == [f"r{i}" for i in range(6)]


def test_a_lower_priority_number_goes_first():
    engine = make_engine(sequences=1)
    for name, priority in (("now", 0), ("later", 1), ("urgent", -1)):
        engine.submit(make_request(name, "hello", 2), random_seed=1, priority=priority)
    finished = [e.request_id for _ in range(20) for e in engine.step() if type(e.frame).__name__ == "Ended"]
    assert finished == ["urgent", "now", "later"]


def test_the_pool_is_taken_from_the_last_arrival():
    engine = make_engine(kv_blocks=8)
    for name in ("first", "last"):
        engine.submit(make_request(name, "hello worlds", 16), random_seed=1)
    answers = {}
    while not engine.stats().preemptions:
        collect(engine.step(), answers)
    assert [s.owner.request.request_id for s in engine._state.waiting] == ["last"]
    drain(engine, answers)
    assert all(a.ids() == expected_ids(make_request("r", "hello worlds", 16)) for a in answers.values())


def test_the_pool_is_taken_from_the_lowest_priority():
    engine = make_engine(kv_blocks=8)
    engine.submit(make_request("batch", "hello worlds", 16), random_seed=1, priority=5)
    engine.submit(make_request("chat", "hello worlds", 16), random_seed=1, priority=0)
    while not engine.stats().preemptions:
        engine.step()
    assert [s.owner.request.request_id for s in engine._state.waiting] == ["batch"]


def test_nobody_is_admitted_in_a_step_that_preempts():
    engine = busy_engine()
    plans = [(planned(engine), engine.step())[0] for _ in range(60)]
    assert any(p.preempted for p in plans)
    assert not any(p.preempted and p.admitted for p in plans)


def test_a_preempted_sequence_waits_in_front_and_is_not_counted_again():
    engine = busy_engine()
    answers = drain(engine)
    assert engine.stats().preemptions > 0
    assert engine.stats().generation_tokens == 100
    assert engine.stats().prompt_tokens == 5 * 15
    assert all(len(a.started) == 1 for a in answers.values())


def test_a_plan_survives_a_copy_of_the_state():
    engine = busy_engine()
    engine.step()
    assert plan(copy.deepcopy(engine._state)) == planned(engine)
