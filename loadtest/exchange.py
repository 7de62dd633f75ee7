"""One request of a load test: sent, read to its end or left early, judged, reported to locust, recorded.

Locust's own rows end when the headers arrive, which for a stream is long before the answer; so nothing here
goes through its HTTP client, and the rows below are the ones that count:

    CHAT stream | CHAT cut      the whole exchange; fails when `stream.judge` says so
    REFUSED 429 | REFUSED 503   told to come back later: counted apart, no failure
    METRIC ttft | tpot | e2e    milliseconds, of answers that were complete
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from locust.env import Environment

from loadtest import records
from loadtest.stream import Heard, Kind, Times, Verdict, judge, times

TIMEOUT_S = 300.0
_GREATEST_CHUNK = 65536


@dataclass(frozen=True, slots=True)
class Question:
    """`leave_after`: how many tokens are read before the client goes; None to stay."""

    content: str
    max_tokens: int
    seed: int
    leave_after: int | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """Where the answers come from, and where the client's own counts are written."""

    url: str
    api_key: str
    model: str
    record: Path

    def body(self, question: Question) -> Mapping[str, Any]:
        """Fixed lengths, so that runs compare; log-probabilities, so that tokens can be counted here."""
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": question.content}],
            "max_tokens": question.max_tokens,
            "ignore_eos": True,
            "seed": question.seed,
            "logprobs": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }


def exchange(
    session: requests.Session, target: Target, question: Question, environment: Environment
) -> Verdict:
    """Ask, and report what came. Never raises for what a server can do."""
    request_id = f"load-{uuid.uuid4().hex}"
    heard, sent_at_s = Heard(), time.perf_counter()
    try:
        status, is_cut = _converse(session, target, question, request_id, heard)
        verdict = judge(status, heard, is_cut)
    except (requests.RequestException, ValueError) as error:
        verdict = Verdict(Kind.FAILED, f"{type(error).__name__}: {error}"[:200])
    _report(environment, verdict, heard, times(heard, sent_at_s, time.perf_counter()))
    records.append(
        target.record,
        records.ClientRecord(request_id, verdict.kind, heard.received, heard.prompt_tokens, verdict.reason),
    )
    return verdict


def _converse(
    session: requests.Session, target: Target, question: Question, request_id: str, heard: Heard
) -> tuple[int, bool]:
    """The status, and whether the client left before the end."""
    with session.post(
        f"{target.url}/v1/chat/completions",
        json=target.body(question),
        headers={"authorization": f"Bearer {target.api_key}", "x-request-id": request_id},
        stream=True,
        timeout=TIMEOUT_S,
    ) as response:
        if response.status_code != 200:
            return response.status_code, False
        for data in response.raw.stream(_GREATEST_CHUNK):
            heard.feed(data, time.perf_counter())
            if question.leave_after is not None and heard.received >= question.leave_after:
                return 200, not heard.has_end
    return 200, False


def _report(environment: Environment, verdict: Verdict, heard: Heard, took: Times) -> None:
    if verdict.kind is Kind.REFUSED:
        _fire(environment, "REFUSED", verdict.reason, took.e2e_s, 0, None)
        return
    name = "cut" if verdict.kind is Kind.CUT else "stream"
    failure = AssertionError(verdict.reason) if verdict.kind is Kind.FAILED else None
    _fire(environment, "CHAT", name, took.e2e_s, heard.received, failure)
    if verdict.kind is Kind.DONE:
        for metric, seconds in (("ttft", took.ttft_s), ("tpot", took.tpot_s), ("e2e", took.e2e_s)):
            if seconds is not None:
                _fire(environment, "METRIC", metric, seconds, heard.received, None)


def _fire(
    environment: Environment, kind: str, name: str, seconds: float, size: int, failure: Exception | None
) -> None:
    environment.events.request.fire(  # type: ignore[no-untyped-call]
        request_type=kind,
        name=name,
        response_time=1000.0 * seconds,
        response_length=size,
        exception=failure,
        context={},
    )
