"""The load test as locust runs it: options, users by scenario, and the gate that decides the exit code.

    locust -f loadtest/locustfile.py --headless --host URL --api-key KEY --model NAME --scenario steady

`make load` does this against a platform of its own, and reconciles afterwards.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from locust import LoadTestShape, User, events
from locust.env import Environment

from loadtest import slo
from loadtest.scenarios import scenarios
from loadtest.users.arriving import ArrivingUser
from loadtest.users.chat import ChatUser, CuttingUser
from loadtest.users.given import given

log = logging.getLogger(__name__)

_SPAWN_PER_S = 20.0


def _add_options(parser: Any) -> None:
    parser.add_argument("--api-key", required=True, is_secret=True, help="a key that may call models")
    parser.add_argument("--model", required=True, help="the deployment to ask")
    parser.add_argument("--scenario", choices=sorted(scenarios(1.0)), default="steady")
    parser.add_argument("--length-s", type=float, default=20.0, help="seconds that the scenario takes")
    parser.add_argument("--least-tokens", type=int, default=8)
    parser.add_argument("--most-tokens", type=int, default=32)
    parser.add_argument("--record", type=Path, default=Path("load.jsonl"), help="what clients counted")
    parser.add_argument("--slo", type=Path, default=Path(__file__).with_name("slo.yaml"))


def _judge(environment: Environment, **_: Any) -> None:
    """Exit 1 when an objective was missed."""
    options = environment.parsed_options
    assert options is not None, "locust was started by its command line"
    missed = slo.breaches(slo.read_objectives(options.slo), _figures(environment))
    for words in missed:
        log.error("objective missed: %s", words)
    environment.process_exit_code = 1 if missed else 0


def _figures(environment: Environment) -> slo.Figures:
    entries = environment.stats.entries
    whole = [entry for (_, kind), entry in entries.items() if kind == "CHAT"]
    failed = sum(entry.num_failures for entry in whole)
    done = entries.get(("e2e", "METRIC"))
    metrics = {name: entry for (name, kind), entry in entries.items() if kind == "METRIC"}
    return slo.Figures(
        done=done.num_requests if done else 0,
        failed=failed,
        p95_ms={name: float(entry.get_response_time_percentile(0.95)) for name, entry in metrics.items()},
    )


class ScenarioShape(LoadTestShape):
    """How many users of which kind, second by second."""

    use_common_options = False

    def tick(self) -> tuple[int, float, list[type[User]] | None] | None:
        assert self.runner is not None, "locust gives its shape a runner"
        scenario = given(self.runner.environment).scenario
        stage = scenario.at(self.get_run_time())  # type: ignore[no-untyped-call]
        if stage is None:
            return None
        wanted: tuple[tuple[type[User], float], ...] = (
            (ChatUser, stage.chat),
            (CuttingUser, stage.cutting),
            (ArrivingUser, stage.rate_per_s),
        )
        return stage.users, _SPAWN_PER_S, [user for user, amount in wanted if amount] or [ChatUser]


events.init_command_line_parser.add_listener(_add_options)  # type: ignore[no-untyped-call]
events.quitting.add_listener(_judge)  # type: ignore[no-untyped-call]
