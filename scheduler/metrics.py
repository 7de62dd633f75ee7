"""Every metric of the scheduler: its own figures, and each deployment's replicas' under our names and vLLM's.

Gauges and counters are made from the control loop's latest snapshot when they are scraped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from scheduler.members import Phases
from scheduler.snapshot import DeploymentFigures, Snapshot

_COLD_START_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 120.0)
_PHASES = frozenset({"queue", "start", "import", "fetch", "verify", "map", "warmup"})
_OWN_LABELS = ("tenant", "deployment")
_ALIAS_LABELS = ("model_name", "engine")

Value = Callable[[DeploymentFigures], float]

_GAUGES: tuple[tuple[str, str, Value], ...] = (
    ("candela_desired_replicas", "Replicas the autoscaler wants.", lambda f: f.desired),
    ("candela_running_requests", "Sequences in the engines.", lambda f: f.running),
    ("candela_waiting_requests", "Sequences waiting in replicas.", lambda f: f.waiting),
    ("candela_held_requests", "Requests held by gateways.", lambda f: f.held),
    ("candela_kv_blocks", "KV blocks of all replicas.", lambda f: f.kv_blocks_total),
    ("candela_kv_used_blocks", "KV blocks in use.", lambda f: f.kv_blocks_used),
    ("candela_autoscaler_panicking", "1 in the panic window.", lambda f: float(f.is_panicking)),
    ("candela_replica_failures_in_a_row", "Failures that slow down starts.", lambda f: f.failures),
)
_COUNTERS: tuple[tuple[str, str, Value], ...] = (
    ("candela_engine_steps", "Forward passes.", lambda f: f.totals.steps),
    ("candela_prompt_tokens", "Prompt tokens taken in.", lambda f: f.totals.prompt_tokens),
    ("candela_generation_tokens", "Tokens generated.", lambda f: f.totals.generation_tokens),
    ("candela_preemptions", "Sequences preempted.", lambda f: f.totals.preemptions),
    ("candela_aborts", "Sequences aborted.", lambda f: f.totals.aborts),
)
_ALIAS_GAUGES: tuple[tuple[str, str, Value], ...] = (
    ("vllm:num_requests_running", "Alias of candela_running_requests.", lambda f: f.running),
    ("vllm:num_requests_waiting", "Waiting or held.", lambda f: f.waiting + f.held),
    ("vllm:kv_cache_usage_perc", "KV blocks in use, 0 to 1.", lambda f: _usage(f)),
    ("vllm:gpu_cache_usage_perc", "The older name of the same.", lambda f: _usage(f)),
)
_ALIAS_COUNTERS: tuple[tuple[str, str, Value], ...] = (
    ("vllm:num_preemptions", "Alias of candela_preemptions.", lambda f: f.totals.preemptions),
    ("vllm:prompt_tokens", "Alias of candela_prompt_tokens.", lambda f: f.totals.prompt_tokens),
    ("vllm:generation_tokens", "Alias of candela_generation_tokens.", lambda f: f.totals.generation_tokens),
)


class SchedulerMetrics(Collector):
    """Registers itself; the control loop hands it snapshots, a scrape reads the last one."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._snapshot = Snapshot(at=0.0, tick_s=0.0, deployments=())
        self._cold_start = Histogram(
            "candela_cold_start_seconds",
            "Parts of a cold start, wake to ready; `total` is their sum.",
            ("phase",),
            buckets=_COLD_START_BUCKETS,
            registry=registry,
        )
        self._ticks = Histogram(
            "candela_tick_seconds", "One round of observe, decide, act.", registry=registry
        )
        registry.register(self)

    def publish(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._ticks.observe(snapshot.tick_s)

    def observe_cold_start(self, phases_s: Phases) -> None:
        for phase, seconds in phases_s:
            self._cold_start.labels(phase if phase in _PHASES else "other").observe(seconds)
        self._cold_start.labels("total").observe(sum(seconds for _, seconds in phases_s))

    def collect(self) -> Iterable[Metric]:
        found = self._snapshot.deployments
        yield _replicas(found)
        yield from _families(GaugeMetricFamily, _GAUGES, _OWN_LABELS, found)
        yield from _families(CounterMetricFamily, _COUNTERS, _OWN_LABELS, found)
        yield from _families(GaugeMetricFamily, _ALIAS_GAUGES, _ALIAS_LABELS, found)
        yield from _families(CounterMetricFamily, _ALIAS_COUNTERS, _ALIAS_LABELS, found)


def _replicas(found: Iterable[DeploymentFigures]) -> Metric:
    family = GaugeMetricFamily("candela_replicas", "Replicas by state.", labels=(*_OWN_LABELS, "state"))
    for figures in found:
        labels = [figures.tenant_id, figures.name]
        family.add_metric([*labels, "starting"], figures.starting)
        family.add_metric([*labels, "ready"], figures.ready)
        family.add_metric([*labels, "draining"], figures.draining)
    return family


def _families(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
    table: Iterable[tuple[str, str, Value]],
    labels: tuple[str, str],
    found: Iterable[DeploymentFigures],
) -> Iterator[Metric]:
    """One family a row; aliases tell equal names of two tenants apart by deployment (`engine`)."""
    for name, documentation, value in table:
        family = kind(name, documentation, labels=labels)
        for figures in found:
            is_own = labels is _OWN_LABELS
            pair = [figures.tenant_id, figures.name] if is_own else [figures.name, figures.deployment_id]
            family.add_metric(pair, value(figures))
        yield family


def _usage(figures: DeploymentFigures) -> float:
    return figures.kv_blocks_used / figures.kv_blocks_total if figures.kv_blocks_total else 0.0
