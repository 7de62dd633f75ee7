"""The autoscaler's decisions, each as a value of policy, memory, samples and time."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.autoscaler import (
    Decision,
    Reason,
    Sample,
    ScalingConfig,
    ScalingState,
    average_demand,
    decide,
    initial_state,
)

CONFIG = ScalingConfig(min_replicas=0, max_replicas=4, target_in_flight=2.0, idle_timeout_s=30.0)


def sample(at: float, **fields: float | int | None) -> Sample:
    values = {"in_flight": 0, "queued": 0, "ready": 0, "starting": 0, "idle_s": None, **fields}
    return Sample(at=at, **values)  # type: ignore[arg-type]


def steady(count: int, until: float, **fields: float | int | None) -> list[Sample]:
    return [sample(until - i, **fields) for i in reversed(range(count))]


def test_no_data_changes_nothing() -> None:
    state = ScalingState(desired=3, active_at=0.0)
    assert decide(CONFIG, state, [], now=100.0) == Decision(3, state, Reason.NO_DATA)


def test_samples_older_than_the_window_are_no_data() -> None:
    state = ScalingState(desired=1, active_at=0.0)
    assert decide(CONFIG, state, [sample(10.0)], now=500.0).reason is Reason.NO_DATA


@pytest.mark.pitfall("Z6")
def test_without_demand_at_zero_it_stays_at_zero() -> None:
    decision = decide(CONFIG, initial_state(0, 0.0), [sample(1.0)], now=1.0)
    assert (decision.replicas, decision.reason) == (0, Reason.AT_ZERO)


def test_one_held_request_starts_a_replica_at_once() -> None:
    decision = decide(CONFIG, initial_state(0, 0.0), [sample(1.0, queued=1)], now=1.0)
    assert (decision.replicas, decision.reason) == (1, Reason.FROM_ZERO)


def test_a_long_quiet_window_does_not_hide_the_first_request() -> None:
    quiet = steady(59, until=59.0)
    decision = decide(CONFIG, initial_state(0, 0.0), [*quiet, sample(60.0, queued=1)], now=60.0)
    assert decision.replicas == 1


def test_activation_scale_is_a_minimum_from_zero() -> None:
    config = replace(CONFIG, activation_replicas=2)
    assert decide(config, initial_state(0, 0.0), [sample(1.0, queued=1)], now=1.0).replicas == 2


@pytest.mark.pitfall("Z7")
def test_queued_requests_count_like_those_in_flight() -> None:
    config = replace(CONFIG, target_in_flight=1.0)
    samples = steady(10, until=100.0, in_flight=1, queued=2, ready=1)
    assert decide(config, initial_state(1, 90.0), samples, now=100.0).replicas == 3


def test_a_starting_replica_is_not_dropped_when_its_client_gives_up() -> None:
    state = ScalingState(desired=1, active_at=99.0)
    decision = decide(CONFIG, state, [sample(100.0, starting=1)], now=100.0)
    assert (decision.replicas, decision.reason) == (1, Reason.LAST_KEPT)


def test_the_last_replica_stays_until_the_idle_timeout() -> None:
    state = ScalingState(desired=1, active_at=0.0)
    decision = decide(CONFIG, state, [sample(100.0, ready=1, idle_s=29.9)], now=100.0)
    assert (decision.replicas, decision.reason) == (1, Reason.LAST_KEPT)


def test_the_last_replica_goes_after_the_idle_timeout() -> None:
    state = ScalingState(desired=1, active_at=0.0)
    decision = decide(CONFIG, state, [sample(100.0, ready=1, idle_s=30.0)], now=100.0)
    assert (decision.replicas, decision.reason) == (0, Reason.IDLE)


@pytest.mark.pitfall("Z1")
def test_idle_counts_from_the_end_of_the_last_request_not_from_scale_up() -> None:
    state = ScalingState(desired=1, active_at=0.0)
    samples = [sample(95.0, in_flight=1, ready=1), sample(97.0, ready=1, idle_s=1.0)]
    assert decide(CONFIG, state, samples, now=97.0).state.active_at == 96.0


def test_a_request_shorter_than_a_tick_still_postpones_idleness() -> None:
    state = ScalingState(desired=1, active_at=0.0)
    decision = decide(CONFIG, state, [sample(100.0, ready=1, idle_s=0.5)], now=100.0)
    assert decision.state.active_at == 99.5


def test_idle_with_a_minimum_keeps_the_minimum() -> None:
    config = replace(CONFIG, min_replicas=1)
    state = ScalingState(desired=1, active_at=0.0)
    decision = decide(config, state, [sample(100.0, ready=1, idle_s=90.0)], now=100.0)
    assert (decision.replicas, decision.reason) == (1, Reason.MINIMUM)


def test_the_minimum_is_started_without_demand() -> None:
    config = replace(CONFIG, min_replicas=2)
    assert decide(config, initial_state(0, 0.0), [sample(1.0)], now=1.0).replicas == 2


def test_the_maximum_bounds_the_wish() -> None:
    samples = steady(10, until=100.0, in_flight=90, ready=1)
    decision = decide(CONFIG, initial_state(1, 90.0), samples, now=100.0)
    assert (decision.replicas, decision.reason) == (4, Reason.MAXIMUM)


def test_a_burst_enters_panic_and_scales_on_the_short_window() -> None:
    samples = [*steady(54, until=94.0, in_flight=1, ready=1), *steady(6, until=100.0, in_flight=6, ready=1)]
    decision = decide(CONFIG, initial_state(1, 40.0), samples, now=100.0)
    assert (decision.replicas, decision.reason) == (3, Reason.PANIC)


def test_panic_never_scales_down() -> None:
    state = ScalingState(desired=3, active_at=99.0, panic_since=95.0, panic_peak=3)
    decision = decide(CONFIG, state, steady(20, until=100.0, in_flight=1, ready=3), now=100.0)
    assert decision.replicas == 3


def test_panic_ends_one_stable_window_after_the_last_hot_moment() -> None:
    state = ScalingState(desired=3, active_at=99.0, panic_since=30.0, panic_peak=3)
    decision = decide(CONFIG, state, steady(60, until=100.0, in_flight=1, ready=3), now=100.0)
    assert (decision.replicas, decision.reason, decision.state.panic_since) == (1, Reason.STABLE, None)


def test_going_idle_ends_panic() -> None:
    state = ScalingState(desired=3, active_at=10.0, panic_since=50.0, panic_peak=3)
    decision = decide(CONFIG, state, [sample(100.0, ready=3, idle_s=60.0)], now=100.0)
    assert (decision.replicas, decision.state.panic_since) == (0, None)


def test_scale_down_halves_at_most() -> None:
    config = replace(CONFIG, max_replicas=20)
    state = ScalingState(desired=16, active_at=99.0)
    decision = decide(config, state, steady(60, until=100.0, in_flight=1, ready=16), now=100.0)
    assert decision.replicas == 8


def test_a_scale_down_delay_keeps_the_higher_wish() -> None:
    config = replace(CONFIG, scale_down_delay_s=20.0)
    state = ScalingState(desired=2, active_at=99.0, wanted=((85.0, 2), (70.0, 4)))
    decision = decide(config, state, steady(60, until=100.0, in_flight=1, ready=2), now=100.0)
    assert decision.replicas == 2


def test_a_restart_beside_several_replicas_sheds_none_of_them() -> None:
    decision = decide(CONFIG, initial_state(3, 100.0), [sample(101.0, in_flight=1, ready=3)], now=101.0)
    assert decision.replicas == 3


def test_samples_within_one_second_weigh_as_one() -> None:
    burst = [sample(10.0 + i / 100, queued=8) for i in range(50)]
    assert average_demand([*burst, sample(11.0), sample(12.0), sample(13.0)], 60.0, now=13.0) == 2.0


TRACES = st.lists(
    st.tuples(
        st.floats(0.1, 5.0), st.integers(0, 40), st.integers(0, 20), st.integers(0, 4), st.floats(0, 99)
    ),
    min_size=1,
    max_size=40,
)


def replay(trace: list[tuple[float, int, int, int, float]]) -> list[Decision]:
    state, samples, now, decisions = initial_state(0, 0.0), [], 0.0, []
    for step_s, in_flight, queued, ready, idle_s in trace:
        now += step_s
        samples.append(sample(now, in_flight=in_flight, queued=queued, ready=ready, idle_s=idle_s))
        decisions.append(decide(CONFIG, state, samples, now))
        state = decisions[-1].state
    return decisions


@given(TRACES)
def test_a_trace_replays_to_identical_bytes(trace: list[tuple[float, int, int, int, float]]) -> None:
    first, second = (json.dumps([asdict(d) for d in replay(trace)]) for _ in range(2))
    assert first == second


@given(TRACES)
def test_decisions_stay_between_minimum_and_maximum(trace: list[tuple[float, int, int, int, float]]) -> None:
    assert all(0 <= d.replicas <= 4 for d in replay(trace))


@given(TRACES)
def test_demand_never_leads_to_zero(trace: list[tuple[float, int, int, int, float]]) -> None:
    pairs = zip(trace, replay(trace), strict=True)
    assert all(d.replicas > 0 for (_, in_flight, queued, _, _), d in pairs if in_flight + queued)
