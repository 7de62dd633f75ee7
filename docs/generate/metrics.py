"""Writes docs/metrics.md from the declarations: `python -m docs.generate.metrics`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from api.metrics import make_metrics
from scheduler.metrics import SchedulerMetrics

PAGE = Path(__file__).parents[1] / "metrics.md"
_HEAD = """\
# Metrics

Made from the declarations by `python -m docs.generate.metrics`; a test fails when this page is old.

Gateway and scheduler each answer `GET /metrics` in Prometheus' format, on addresses of their own
(`CANDELA_METRICS_ADDR`, `CANDELA_SCHEDULER_METRICS_ADDR`; loopback by default), without a key. Counters end
in `_total`. Labels come from closed sets: states, kinds, handlers, and names of deployments that exist.
"""
_SCHEDULER = """
What replicas count is in the scheduler's: it polls each over its socket, and goes on counting for those that
are gone. Names with `vllm:` are the same figures under vLLM's names, for dashboards that know them.
"""


def page() -> str:
    registry = CollectorRegistry()
    SchedulerMetrics(registry)
    gateway, scheduler = make_metrics().registry.collect(), registry.collect()
    return f"{_HEAD}\n## Gateway\n\n{_table(gateway)}\n## Scheduler\n{_SCHEDULER}\n{_table(scheduler)}"


def _table(families: Iterable[Metric]) -> str:
    rows = (f"| `{_shown(f)}` | {f.type} | {f.documentation} |\n" for f in families)
    return "| name | kind | what it is |\n| --- | --- | --- |\n" + "".join(rows)


def _shown(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
