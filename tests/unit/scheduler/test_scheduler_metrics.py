"""What a scrape of the scheduler reads."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from scheduler.metrics import SchedulerMetrics
from scheduler.snapshot import DeploymentFigures, Snapshot, Totals

CHAT = DeploymentFigures(
    deployment_id="dep_1",
    tenant_id="ten_1",
    name="chat",
    desired=2,
    starting=1,
    ready=1,
    draining=0,
    running=3,
    waiting=4,
    held=5,
    kv_blocks_total=64,
    kv_blocks_used=16,
    is_panicking=True,
    failures=0,
    totals=Totals(steps=10, prompt_tokens=20, generation_tokens=30, preemptions=1, aborts=2),
)


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    metrics = SchedulerMetrics(registry)
    metrics.publish(Snapshot(1.0, 0.01, (CHAT,)))
    metrics.observe_cold_start((("queue", 0.1), ("start", 0.2), ("strange", 0.7)))
    return registry


OWN = {"tenant": "ten_1", "deployment": "chat"}
ALIAS = {"model_name": "chat", "engine": "dep_1"}


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("candela_replicas", {**OWN, "state": "starting"}, 1.0),
        ("candela_desired_replicas", OWN, 2.0),
        ("candela_held_requests", OWN, 5.0),
        ("candela_generation_tokens_total", OWN, 30.0),
        ("candela_autoscaler_panicking", OWN, 1.0),
        ("vllm:num_requests_running", ALIAS, 3.0),
        ("vllm:num_requests_waiting", ALIAS, 9.0),
        ("vllm:kv_cache_usage_perc", ALIAS, 0.25),
        ("vllm:num_preemptions_total", ALIAS, 1.0),
        ("vllm:prompt_tokens_total", ALIAS, 20.0),
        ("vllm:generation_tokens_total", ALIAS, 30.0),
        ("candela_cold_start_seconds_count", {"phase": "total"}, 1.0),
        ("candela_cold_start_seconds_sum", {"phase": "start"}, 0.2),
        ("candela_cold_start_seconds_sum", {"phase": "other"}, 0.7),
    ],
)
def test_a_scrape_reads(registry: CollectorRegistry, name: str, labels: dict[str, str], value: float) -> None:
    assert registry.get_sample_value(name, labels) == pytest.approx(value)


def test_the_text_form_has_no_family_twice(registry: CollectorRegistry) -> None:
    heads = [line for line in generate_latest(registry).decode().splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len({line.split()[2] for line in heads})
