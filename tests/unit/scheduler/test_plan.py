"""Which replicas to start, drain and kill; and how failures slow down starting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.wire import ReplicaState
from scheduler.backoff import Backoff, delay_s
from scheduler.plan import Deadlines, Plan, ReplicaView, plan

DEADLINES = Deadlines(start_s=100.0, drain_s=200.0)


def ready(name: str, **fields: object) -> ReplicaView:
    return ReplicaView(name, ReplicaState.READY, 50.0, **fields)  # type: ignore[arg-type]


def starting(name: str, for_s: float = 1.0) -> ReplicaView:
    return ReplicaView(name, ReplicaState.STARTING, for_s)


def draining(name: str, for_s: float = 1.0) -> ReplicaView:
    return ReplicaView(name, ReplicaState.DRAINING, for_s)


def test_what_is_missing_is_started() -> None:
    assert plan(3, [ready("a")], DEADLINES) == Plan(starts=2)


def test_starting_replicas_count_as_existing() -> None:
    assert plan(2, [ready("a"), starting("b")], DEADLINES) == Plan()


def test_draining_replicas_do_not_count() -> None:
    assert plan(1, [draining("a")], DEADLINES) == Plan(starts=1)


def test_a_starting_replica_goes_before_a_ready_one() -> None:
    assert plan(1, [ready("a"), starting("b")], DEADLINES).drains == ("b",)


def test_the_least_busy_replica_goes_first() -> None:
    assert plan(1, [ready("a", in_flight=3), ready("b", in_flight=1)], DEADLINES).drains == ("b",)


def test_among_idle_replicas_the_longest_idle_goes_first() -> None:
    assert plan(1, [ready("a", idle_s=3.0), ready("b", idle_s=9.0)], DEADLINES).drains == ("b",)


def test_zero_wanted_drains_all() -> None:
    assert set(plan(0, [ready("a"), ready("b", is_outdated=True)], DEADLINES).drains) == {"a", "b"}


def test_a_new_revision_is_started_beside_the_old_one() -> None:
    assert plan(1, [ready("old", is_outdated=True)], DEADLINES) == Plan(starts=1)


@pytest.mark.pitfall("Z11")
def test_the_old_revision_serves_until_the_new_one_is_ready() -> None:
    assert plan(1, [ready("old", is_outdated=True), starting("new")], DEADLINES) == Plan()


def test_the_old_revision_drains_once_the_new_one_is_ready() -> None:
    assert plan(1, [ready("old", is_outdated=True), ready("new")], DEADLINES) == Plan(drains=("old",))


def test_a_start_that_takes_too_long_is_killed_and_replaced() -> None:
    found = plan(1, [starting("a", for_s=101.0)], DEADLINES)
    assert (found.starts, [k.is_failure for k in found.kills]) == (1, [True])


def test_a_drain_that_takes_too_long_is_killed_without_blame() -> None:
    found = plan(0, [draining("a", for_s=201.0)], DEADLINES)
    assert (found.starts, [k.is_failure for k in found.kills]) == (0, [False])


def test_a_silent_replica_is_killed_and_replaced() -> None:
    found = plan(1, [ready("a", is_responsive=False)], DEADLINES)
    assert (found.starts, found.drains, [k.replica_id for k in found.kills]) == (1, (), ["a"])


VIEWS = st.lists(
    st.builds(
        ReplicaView,
        replica_id=st.uuids().map(str),
        state=st.sampled_from([ReplicaState.STARTING, ReplicaState.READY, ReplicaState.DRAINING]),
        in_state_s=st.floats(0, 300),
        is_outdated=st.booleans(),
        is_responsive=st.booleans(),
        in_flight=st.integers(0, 9),
        idle_s=st.floats(0, 99),
    ),
    max_size=8,
    unique_by=lambda r: r.replica_id,
)


@given(st.integers(0, 6), VIEWS)
def test_carrying_out_a_plan_leads_to_the_wanted_number(wanted: int, replicas: list[ReplicaView]) -> None:
    found = plan(wanted, replicas, DEADLINES)
    gone = {*found.drains, *(k.replica_id for k in found.kills)}
    states = (ReplicaState.STARTING, ReplicaState.READY)
    left = [r for r in replicas if r.replica_id not in gone and r.state in states and not r.is_outdated]
    assert len(left) + found.starts == wanted


@given(st.integers(0, 6), VIEWS)
def test_nothing_is_both_drained_and_killed(wanted: int, replicas: list[ReplicaView]) -> None:
    found = plan(wanted, replicas, DEADLINES)
    assert not {*found.drains} & {k.replica_id for k in found.kills}


@pytest.mark.parametrize(("failures", "seconds"), [(1, 0.0), (2, 1.0), (3, 2.0), (4, 4.0), (99, 60.0)])
def test_waits_double_up_to_a_minute(failures: int, seconds: float) -> None:
    assert delay_s(failures) == seconds


def test_failures_in_a_row_forbid_a_start_for_a_while() -> None:
    backoff = Backoff().after_failure(10.0, None).after_failure(20.0, None).after_failure(30.0, None)
    assert (backoff.may_start(31.9), backoff.may_start(32.0)) == (False, True)


def test_a_replica_that_served_for_long_starts_the_count_anew() -> None:
    backoff = Backoff(failures=7).after_failure(10.0, ready_for_s=61.0)
    assert (backoff.failures, backoff.may_start(10.0)) == (1, True)
