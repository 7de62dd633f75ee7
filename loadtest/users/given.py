"""What all users of a run are given: locust's options, the questions, and a seed for each."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from locust.env import Environment

from loadtest.exchange import Target
from loadtest.scenarios import Scenario, scenarios

PROMPTS = Path(__file__).parents[1] / "prompts" / "questions.jsonl"
_SEEDS = itertools.count()


@dataclass(frozen=True, slots=True)
class Given:
    """`contents` are the questions; lengths are drawn between the two bounds."""

    target: Target
    scenario: Scenario
    contents: tuple[str, ...]
    least_tokens: int
    most_tokens: int


def given(environment: Environment) -> Given:
    """What the command line says."""
    options = environment.parsed_options
    assert options is not None, "locust was started by its command line"
    return Given(
        target=Target(str(environment.host).rstrip("/"), options.api_key, options.model, options.record),
        scenario=scenarios(options.length_s)[options.scenario],
        contents=read_contents(),
        least_tokens=options.least_tokens,
        most_tokens=options.most_tokens,
    )


def next_seed() -> int:
    """A seed for each user of this process, in the order in which they start."""
    return next(_SEEDS)


@cache
def read_contents(path: Path = PROMPTS) -> tuple[str, ...]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(str(json.loads(line)["content"]) for line in lines)
