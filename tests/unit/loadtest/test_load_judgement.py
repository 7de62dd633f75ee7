"""What a load test's client hears and how it is judged; objectives; scenarios."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from loadtest.scenarios import arrivals, scenarios
from loadtest.slo import Figures, Objectives, breaches, read_objectives
from loadtest.stream import Heard, Kind, Verdict, judge, times

SLO = Path(__file__).parents[3] / "loadtest" / "slo.yaml"


def chunk(tokens: int, **more: Any) -> bytes:
    """One event with so many tokens."""
    content = [{"token": "x", "logprob": -1.0}] * tokens
    choice = {"index": 0, "delta": {"content": "x"}, "logprobs": {"content": content}}
    return b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n"


def usage(completion: int) -> bytes:
    told = {"prompt_tokens": 7, "completion_tokens": completion}
    return b"data: " + json.dumps({"choices": [], "usage": told}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
WHOLE = b": waiting\n\n" + chunk(1) + chunk(2) + usage(3) + DONE


def heard(data: bytes) -> Heard:
    found = Heard()
    found.feed(data, 1.0)
    return found


def test_a_whole_answer_is_done() -> None:
    assert judge(200, heard(WHOLE), is_cut=False) == Verdict(Kind.DONE)


def test_bytes_may_arrive_one_by_one() -> None:
    found = Heard()
    for number in range(len(WHOLE)):
        found.feed(WHOLE[number : number + 1], float(number))
    assert (found.received, found.told, found.prompt_tokens, found.has_end) == (3, 3, 7, True)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (chunk(1) + DONE, "no usage chunk"),
        (chunk(1) + usage(2) + DONE, "usage says 2 tokens, 1 came"),
        (chunk(1) + usage(1), "no [DONE]"),
        (chunk(1) + b'data: {"error": {"code": "replica_lost"}}\n\n' + DONE, "error frame: replica_lost"),
    ],
)
def test_an_answer_that_lacks_something_fails(data: bytes, reason: str) -> None:
    assert judge(200, heard(data), is_cut=False) == Verdict(Kind.FAILED, reason)


@pytest.mark.parametrize("status", [429, 503])
def test_being_told_to_come_back_is_no_failure(status: int) -> None:
    assert judge(status, Heard(), is_cut=False) == Verdict(Kind.REFUSED, str(status))


def test_any_other_status_is_a_failure() -> None:
    assert judge(500, Heard(), is_cut=False) == Verdict(Kind.FAILED, "status 500")


def test_a_client_that_leaves_has_no_right_to_an_end() -> None:
    assert judge(200, heard(chunk(2)), is_cut=True) == Verdict(Kind.CUT)


def test_times_run_from_sending_to_first_token_and_to_the_end() -> None:
    found = Heard()
    found.feed(chunk(1), 10.5)
    found.feed(chunk(4), 11.5)
    took = times(found, sent_at_s=10.0, ended_at_s=12.0)
    assert (took.ttft_s, took.tpot_s, took.e2e_s) == (0.5, 0.25, 2.0)


def test_an_answer_of_one_token_has_no_time_per_later_token() -> None:
    assert times(heard(chunk(1)), 0.0, 2.0).tpot_s is None


def test_objectives_that_hold_breach_nothing() -> None:
    objectives = Objectives(fail_ratio=0.0, least_done=1, p95_ms={"ttft": 100.0})
    assert breaches(objectives, Figures(done=5, failed=0, p95_ms={"ttft": 99.0})) == ()


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        (Figures(0, 0, {}), "0 requests were answered"),
        (Figures(9, 1, {}), "10.00% of the requests failed"),
        (Figures(5, 0, {"ttft": 101.0}), "p95 of ttft is 101 ms"),
    ],
)
def test_an_objective_that_is_missed_is_named(figures: Figures, words: str) -> None:
    objectives = Objectives(fail_ratio=0.0, least_done=1, p95_ms={"ttft": 100.0})
    assert words in breaches(objectives, figures)[0]


def test_the_shipped_objectives_can_be_read() -> None:
    assert set(read_objectives(SLO).p95_ms) == {"ttft", "tpot", "e2e"}


@pytest.mark.parametrize("name", sorted(scenarios(40.0)))
def test_every_scenario_has_users_and_ends(name: str) -> None:
    scenario = scenarios(40.0)[name]
    assert max(stage.users for stage in scenario.stages) >= 1
    assert (scenario.length_s, scenario.at(40.0)) == (40.0, None)


def test_the_ramp_doubles_in_each_quarter() -> None:
    ramp = scenarios(40.0)["ramp"]
    found = [stage.chat for at_s in (0, 10, 20, 30) if (stage := ramp.at(at_s)) is not None]
    assert found == [1, 2, 4, 8]


def test_arrivals_come_at_their_rate_and_by_their_seed() -> None:
    gaps = list(itertools.islice(arrivals(4.0, seed=1), 4000))
    assert gaps == list(itertools.islice(arrivals(4.0, seed=1), 4000))
    assert sum(gaps) / len(gaps) == pytest.approx(0.25, rel=0.05)
