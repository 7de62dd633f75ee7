"""How many replicas a deployment should have: a pure function of its policy, memory, samples and the time.

A recorded trace replays to the same decisions. Observing, placing and starting are the control loop's.
Source: Knative Serving's pod autoscaler (stable and panic windows), with the idle period counted from the end
of the last request instead of from the last change of scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum


class Reason(StrEnum):
    """Why a decision is what it is; a closed set, fit for a metric's label."""

    NO_DATA = "no_data"
    AT_ZERO = "at_zero"
    FROM_ZERO = "from_zero"
    STABLE = "stable"
    PANIC = "panic"
    LAST_KEPT = "last_kept"
    IDLE = "idle"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"


@dataclass(frozen=True, slots=True)
class ScalingConfig:
    """A deployment's policy with the windows and rates that all deployments share.

    `target_in_flight` is requests per replica, taken literally. Rates bound one decision: at most
    `max_scale_up_rate` times the ready replicas, at least their `max_scale_down_rate`-th part.
    """

    min_replicas: int = 0
    max_replicas: int = 1
    target_in_flight: float = 8.0
    idle_timeout_s: float = 60.0
    activation_replicas: int = 1
    stable_window_s: float = 60.0
    panic_window_s: float = 6.0
    panic_threshold: float = 2.0
    max_scale_up_rate: float = 1000.0
    max_scale_down_rate: float = 2.0
    scale_down_delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One observation. `queued` counts requests held by gateways and waiting in replicas.

    `idle_s` is the time since the last request ended (or since ready), the smallest over the replicas; None
    when no replica said.
    """

    at: float
    in_flight: int
    queued: int
    ready: int
    starting: int
    idle_s: float | None = None

    @property
    def demand(self) -> int:
        return self.in_flight + self.queued

    @property
    def existing(self) -> int:
        return self.ready + self.starting


@dataclass(frozen=True, slots=True)
class ScalingState:
    """What the autoscaler remembers between decisions. `wanted` is the recent raw wishes (time, replicas)."""

    desired: int
    active_at: float
    panic_since: float | None = None
    panic_peak: int = 0
    wanted: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """`replicas` to have (starting ones included), the memory for the next call, and why."""

    replicas: int
    state: ScalingState
    reason: Reason


def initial_state(existing: int, now: float) -> ScalingState:
    """Memory of an autoscaler that starts beside `existing` replicas.

    More than one starts in panic, so that a lost history sheds nobody for one stable window.
    """
    if existing > 1:
        return ScalingState(desired=existing, active_at=now, panic_since=now, panic_peak=existing)
    return ScalingState(desired=existing, active_at=now)


def decide(config: ScalingConfig, state: ScalingState, samples: Sequence[Sample], now: float) -> Decision:
    """Replicas wanted at `now`; `samples` are in order of time, and old ones are ignored.

    Pure: the caller owns the clock, the samples and the actions. The last replica goes only when nothing was
    in flight or queued for `idle_timeout_s`; any demand at zero wants a replica at once.
    """
    recent = trim(samples, config, now)
    if not recent:
        return Decision(state.desired, state, Reason.NO_DATA)
    newest = recent[-1]
    state = replace(state, active_at=_active_at(state.active_at, recent))
    state, want, reason = _windows(config, state, recent, now)
    if newest.demand > 0 and newest.existing == 0:
        want, reason = max(want, config.activation_replicas, 1), Reason.FROM_ZERO
    elif newest.demand == 0 and newest.existing == 0:
        want, reason = 0, Reason.AT_ZERO
    elif newest.demand == 0 and now - state.active_at >= config.idle_timeout_s:
        want, reason = 0, Reason.IDLE
        state = replace(state, panic_since=None, panic_peak=0)
    elif want < 1:
        want, reason = 1, Reason.LAST_KEPT
    state, want = _delayed(config, state, want, reason, now)
    return _bounded(config, state, want, reason)


def trim(samples: Sequence[Sample], config: ScalingConfig, now: float) -> tuple[Sample, ...]:
    """The samples that still matter: those inside the stable window, and none from the future."""
    return tuple(s for s in samples if now - config.stable_window_s < s.at <= now)


def average_demand(samples: Sequence[Sample], window_s: float, now: float) -> float:
    """Mean demand over the window, each second weighing the same however often it was sampled."""
    seconds: dict[int, list[int]] = {}
    for sample in samples:
        if sample.at > now - window_s:
            seconds.setdefault(math.floor(sample.at), []).append(sample.demand)
    if not seconds:
        return 0.0
    return sum(sum(values) / len(values) for values in seconds.values()) / len(seconds)


def _active_at(known: float, samples: Sequence[Sample]) -> float:
    """Latest moment at which something is known to have been in flight or queued."""
    for sample in samples:
        if sample.demand > 0:
            known = max(known, sample.at)
        elif sample.idle_s is not None:
            known = max(known, sample.at - sample.idle_s)
    return known


def _windows(
    config: ScalingConfig, state: ScalingState, samples: Sequence[Sample], now: float
) -> tuple[ScalingState, int, Reason]:
    ready = max(1, samples[-1].ready)
    highest = math.ceil(config.max_scale_up_rate * ready)
    lowest = math.floor(ready / config.max_scale_down_rate)
    stable = _replicas_for(average_demand(samples, config.stable_window_s, now), config)
    burst = _replicas_for(average_demand(samples, config.panic_window_s, now), config)
    state = _panic(config, state, burst / ready >= config.panic_threshold, now)
    want = min(max(stable, lowest), highest)
    if state.panic_since is None:
        return state, want, Reason.STABLE
    peak = max(want, min(max(burst, lowest), highest), state.panic_peak)
    return replace(state, panic_peak=peak), peak, Reason.PANIC


def _panic(config: ScalingConfig, state: ScalingState, is_hot: bool, now: float) -> ScalingState:
    if is_hot:
        return replace(state, panic_since=now)
    if state.panic_since is not None and now > state.panic_since + config.stable_window_s:
        return replace(state, panic_since=None, panic_peak=0)
    return state


def _replicas_for(demand: float, config: ScalingConfig) -> int:
    return math.ceil(demand / config.target_in_flight)


def _delayed(
    config: ScalingConfig, state: ScalingState, want: int, reason: Reason, now: float
) -> tuple[ScalingState, int]:
    """Hold a higher recent wish for `scale_down_delay_s`; going idle has its own delay and skips this one."""
    if reason in (Reason.IDLE, Reason.AT_ZERO):
        return replace(state, wanted=()), want
    kept = tuple(w for w in state.wanted if now - w[0] < config.scale_down_delay_s)
    wanted = (*kept, (now, want)) if config.scale_down_delay_s > 0 else ()
    return replace(state, wanted=wanted), max((w for _, w in wanted), default=want)


def _bounded(config: ScalingConfig, state: ScalingState, want: int, reason: Reason) -> Decision:
    if want < config.min_replicas:
        want, reason = config.min_replicas, Reason.MINIMUM
    elif want > config.max_replicas:
        want, reason = config.max_replicas, Reason.MAXIMUM
    return Decision(want, replace(state, desired=want), reason)
