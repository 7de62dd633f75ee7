"""The gateway's metrics, declared once: `candela_*` and the usual HTTP pair. Labels come from closed sets
only.

`model_name` is bounded too: it is set only to names of deployments that exist. Bucket lists follow the
de-facto standard of serving engines, so that existing dashboards read them.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# fmt: off
TTFT_BUCKETS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)
ITL_BUCKETS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
)
E2E_BUCKETS = (
    0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
)
# fmt: on
HTTP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
TOKEN_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)


@dataclass(frozen=True, slots=True)
class Metrics:
    """Handles to every series of this process."""

    registry: CollectorRegistry
    http_requests: Counter
    http_seconds: Histogram
    ttft: Histogram
    itl: Histogram
    e2e: Histogram
    overhead: Histogram
    billed_tokens: Counter
    requests: Counter
    aborted: Counter
    prompt_size: Histogram
    generation_size: Histogram
    held: Gauge
    in_flight: Gauge
    cold_starts: Histogram
    settle_failures: Counter
    uploaded_bytes: Counter


def make_metrics() -> Metrics:
    """A registry of its own, so that two gateways in one process (a test) don't share counters."""
    registry = CollectorRegistry()

    def counter(name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=registry)

    def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=registry)

    return Metrics(
        registry=registry,
        http_requests=counter("http_requests_total", "HTTP requests", "handler", "method", "status"),
        http_seconds=histogram(
            "http_request_duration_seconds", "Arrival to the last byte", HTTP_BUCKETS, "handler", "method"
        ),
        ttft=histogram(
            "candela_time_to_first_token_seconds",
            "Arrival, before tokenizing, to the first token",
            TTFT_BUCKETS,
            "model_name",
        ),
        itl=histogram(
            "candela_inter_token_latency_seconds",
            "Between two tokens of a sequence",
            ITL_BUCKETS,
            "model_name",
        ),
        e2e=histogram(
            "candela_e2e_request_latency_seconds", "Arrival to the last token", E2E_BUCKETS, "model_name"
        ),
        overhead=histogram(
            "candela_gateway_overhead_seconds",
            "Arrival to the call of a replica, holding left out",
            HTTP_BUCKETS,
        ),
        billed_tokens=counter(
            "candela_billed_tokens_total", "Tokens written to the ledger", "kind", "model_name"
        ),
        requests=counter(
            "candela_requests_total", "Ended generation requests", "model_name", "endpoint", "status"
        ),
        aborted=counter(
            "candela_requests_aborted_total", "Generations that did not end by themselves", "reason"
        ),
        prompt_size=histogram(
            "candela_request_prompt_tokens", "Prompt tokens a request", TOKEN_BUCKETS, "model_name"
        ),
        generation_size=histogram(
            "candela_request_generation_tokens", "Generated tokens a request", TOKEN_BUCKETS, "model_name"
        ),
        held=Gauge("candela_held_requests", "Requests waiting for a replica's slot", registry=registry),
        in_flight=Gauge("candela_in_flight_requests", "Requests at a replica", registry=registry),
        cold_starts=histogram(
            "candela_cold_start_wait_seconds",
            "How long a request was held until a replica took it",
            TTFT_BUCKETS,
        ),
        settle_failures=counter(
            "candela_settle_failures_total", "Settlements left to the scheduler, which repeats them"
        ),
        uploaded_bytes=counter("candela_uploaded_bytes_total", "Bytes of accepted parts"),
    )
