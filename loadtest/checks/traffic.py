"""Requests that arrive at random beside each other, and the same requests alone: their answers must be equal.

Everything is drawn from a seed, and time is counted in steps of the engine.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from batching.engine import Engine, EngineStats, Event
from common.wire import Delta, Failed, Finished, FinishReason, GenerateRequest, Sampling, TokenLogprob

_SAMPLINGS = (
    Sampling(temperature=0.0),
    Sampling(temperature=0.8, top_p=0.9, seed=7),
    Sampling(temperature=1.3, top_k=20, seed=8),
    Sampling(temperature=0.7, repetition_penalty=1.3, presence_penalty=0.4, seed=9),
)
_LOGPROBS = 3
_RANDOM_SEED = 11
_MOST_STEPS = 20_000


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request, the step before which it is submitted, and how many steps later it is aborted, if it is."""

    request: GenerateRequest
    at_step: int
    aborted_after: int | None = None


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bounds of what is drawn. Prompt ids lie below `vocab_size`."""

    vocab_size: int
    longest_prompt: int
    longest_answer: int
    window_steps: int


@dataclass(slots=True)
class Answer:
    """One sequence of a request, as its frames told it."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    text: str = ""
    reason: FinishReason | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """All answers by request and sequence, and the engine's figures when nothing was left to do."""

    answers: Mapping[tuple[str, int], Answer]
    stats: EngineStats
    widest_step: int


def draw_arrivals(seed: int, sizes: Sizes, count: int = 16, aborted: int = 4) -> tuple[Arrival, ...]:
    """`count` requests of mixed kinds: greedy and sampled, one or two answers, a few that score their prompt.

    Half of the prompts are short, the others up to the longest; `aborted` of the requests are aborted.
    """
    rng = random.Random(seed)
    doomed = set(rng.sample(range(count), aborted))
    arrivals = []
    for number in range(count):
        longest = sizes.longest_prompt if number % 2 else max(sizes.longest_prompt // 8, 1)
        ids = tuple(rng.randrange(sizes.vocab_size) for _ in range(rng.randint(1, longest)))
        request = GenerateRequest(
            request_id=f"r{number}",
            tenant_id="check",
            prompt_ids=ids,
            max_tokens=rng.randint(max(sizes.longest_answer // 2, 1), sizes.longest_answer),
            sampling=_SAMPLINGS[number % len(_SAMPLINGS)],
            n=2 if number % 5 == 3 else 1,
            logprobs=_LOGPROBS,
            echo=number % 7 == 2,
        )
        after = rng.randint(1, sizes.longest_answer // 2) if number in doomed else None
        arrivals.append(Arrival(request, rng.randrange(sizes.window_steps), after))
    return tuple(arrivals)


def play(engine: Engine, arrivals: Sequence[Arrival]) -> Outcome:
    """Submit, step and abort as the arrivals say, until the engine has nothing left to do."""
    answers: dict[tuple[str, int], Answer] = {}
    step = widest = 0
    last = max(max(a.at_step, a.at_step + (a.aborted_after or 0)) for a in arrivals)
    while engine.has_work or step <= last:
        for arrival in arrivals:
            if arrival.at_step == step:
                engine.submit(arrival.request, random_seed=_RANDOM_SEED)
            if arrival.aborted_after is not None and arrival.at_step + arrival.aborted_after == step:
                _take(answers, engine.abort(arrival.request.request_id))
        _take(answers, engine.step())
        widest = max(widest, engine.stats().running)
        step += 1
        assert step < _MOST_STEPS, "the engine does not come to an end"
    return Outcome(answers, engine.stats(), widest)


def play_alone(engine: Engine, arrivals: Sequence[Arrival]) -> Outcome:
    """Each request by itself, to its end, one after the other, its siblings one by one too."""
    answers: dict[tuple[str, int], Answer] = {}
    for arrival in arrivals:
        found = play(engine, [replace(arrival, at_step=0, aborted_after=None)])
        answers.update(found.answers)
    return Outcome(answers, engine.stats(), 1)


def differences(together: Outcome, alone: Outcome) -> list[str]:
    """What being together changed, a sentence for each answer. An aborted one must be a beginning."""
    found = [_difference(key, answer, alone.answers[key]) for key, answer in sorted(together.answers.items())]
    return [sentence for sentence in found if sentence is not None]


def missing(together: Outcome, arrivals: Sequence[Arrival]) -> list[str]:
    """Requests that were not aborted and have fewer finished answers than they asked for."""
    wanted = [(a.request.request_id, i) for a in arrivals for i in range(a.request.n)]
    unfinished = [
        key for key in wanted if key not in together.answers or together.answers[key].reason is None
    ]
    return [f"{request_id}/{index} has no end" for request_id, index in unfinished]


def _take(answers: dict[tuple[str, int], Answer], events: Sequence[Event]) -> None:
    for event in events:
        frame = event.frame
        if isinstance(frame, Failed):
            answers.setdefault((event.request_id, 0), Answer()).failure = frame.code
        elif isinstance(frame, Delta):
            _extend(answers.setdefault((event.request_id, frame.index), Answer()), frame)
        elif isinstance(frame, Finished):
            answers.setdefault((event.request_id, frame.index), Answer()).reason = frame.reason


def _extend(answer: Answer, frame: Delta) -> None:
    if not frame.completion_tokens:
        answer.prompt_logprobs += frame.logprobs
        return
    answer.ids += frame.ids
    answer.logprobs += frame.logprobs
    answer.text += frame.text


def _difference(key: tuple[str, int], got: Answer, wanted: Answer) -> str | None:
    name = f"{key[0]}/{key[1]}"
    if got.failure is not None or wanted.failure is not None:
        return f"{name} failed: {got.failure} together, {wanted.failure} alone"
    is_cut = got.reason is FinishReason.ABORT
    size = len(got.ids) if is_cut else len(wanted.ids)
    if got.ids != wanted.ids[:size]:
        place = next((k for k, (a, b) in enumerate(zip(got.ids, wanted.ids, strict=False)) if a != b), size)
        return f"{name} says another token at {place}"
    if got.logprobs != wanted.logprobs[:size]:
        pairs = zip(got.logprobs, wanted.logprobs, strict=False)
        most = max(abs(a.logprob - b.logprob) for a, b in pairs)
        return f"{name} has other log-probabilities, by up to {most:.3g}"
    if got.prompt_logprobs != wanted.prompt_logprobs and not is_cut:
        return f"{name} scores its prompt differently"
    if not is_cut and (got.text, got.reason) != (wanted.text, wanted.reason):
        return f"{name} ends differently"
    return None
