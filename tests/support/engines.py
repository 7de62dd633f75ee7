"""Engines over fake programs, requests with short defaults, and what a request should answer by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from batching.engine import Engine, EngineConfig, Event, Outcome, Picked, Score, StepInput
from batching.replica.program import SampledProgram
from common.wire import (
    Delta,
    Ended,
    Failed,
    Finished,
    FinishReason,
    Frame,
    GenerateRequest,
    Sampling,
    Started,
)
from compiler.runtime.sample import History, SamplingRow, sample
from tests.support.fake_program import VOCABULARY, ByteDetokenizer, FakeProgram, logits_after

GREEDY = Sampling(temperature=0.0)


def make_request(
    request_id: str, prompt: Sequence[int] | str, max_tokens: int = 8, **changes: object
) -> GenerateRequest:
    ids = tuple(prompt.encode()) if isinstance(prompt, str) else tuple(prompt)
    fields = {"sampling": GREEDY, **changes}
    return GenerateRequest(request_id, "tenant", ids, max_tokens, **fields)  # type: ignore[arg-type]


def make_engine(kv_blocks: int = 64, *, budget: int = 64, sequences: int = 8, waiting: int = 256) -> Engine:
    program = FakeProgram(kv_blocks, max_batched_tokens=budget, max_sequences=sequences)
    config = EngineConfig(kv_blocks, sequences, budget, waiting)
    return Engine(config, SampledProgram(program, lambda: 0.0), ByteDetokenizer())


class ScriptedProgram:
    """The engine's Program whose every sequence says the same thing, whatever it was asked."""

    vocab_size, max_context, block_size, max_batched_tokens, max_sequences = VOCABULARY, 512, 4, 64, 8

    def __init__(self, script: Sequence[int]) -> None:
        self.script = script
        self.draws: list[StepInput] = []

    def step(self, batch: StepInput) -> list[Outcome]:
        self.draws.append(batch)
        return [self._answer(batch, i) for i in range(len(batch.picks))]

    def _answer(self, batch: StepInput, i: int) -> Outcome:
        pick = batch.picks[i]
        if isinstance(pick, Score):
            return Picked(pick.token_id, -1.0, ((pick.token_id, -1.0),))
        told = self.script[pick.position % len(self.script)]
        return Picked(told, -0.5 if pick.logprobs is not None else None)


def scripted_engine(text: str | Sequence[int], prompt_length: int = 4) -> Engine:
    """An engine that answers `text` to any prompt of `prompt_length` tokens."""
    ids = list(text.encode()) if isinstance(text, str) else list(text)
    program = ScriptedProgram([0] * prompt_length + ids + [ord("~")] * 400)
    return Engine(
        EngineConfig(kv_blocks=128, max_sequences=8, max_batched_tokens=64), program, ByteDetokenizer()
    )


@dataclass
class Answer:
    """All frames of one request, taken apart. `counts` are the cumulative counts as they came."""

    frames: list[Frame] = field(default_factory=list)
    started: list[Started] = field(default_factory=list)
    deltas: list[Delta] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)

    def add(self, frame: Frame) -> None:
        self.frames.append(frame)
        kinds = {
            Started: self.started,
            Delta: self.deltas,
            Finished: self.finished,
            Ended: self.ended,
            Failed: self.failed,
        }
        kinds[type(frame)].append(frame)  # type: ignore[attr-defined]

    def ids(self, index: int = 0) -> list[int]:
        return [i for d in self.deltas if d.index == index and d.completion_tokens for i in d.ids]

    def text(self, index: int = 0) -> str:
        return "".join(d.text for d in self.deltas if d.index == index)

    @property
    def reasons(self) -> list[FinishReason]:
        return [f.reason for f in sorted(self.finished, key=lambda f: f.index)]


def collect(events: Iterable[Event], into: dict[str, Answer] | None = None) -> dict[str, Answer]:
    answers = {} if into is None else into
    for event in events:
        answers.setdefault(event.request_id, Answer()).add(event.frame)
    return answers


def drain(engine: Engine, into: dict[str, Answer] | None = None, most_steps: int = 5000) -> dict[str, Answer]:
    """Step until nothing is left."""
    answers = {} if into is None else into
    for _ in range(most_steps):
        if not engine.has_work:
            return answers
        collect(engine.step(), answers)
    raise AssertionError(f"the engine still has work after {most_steps} steps")


def answer(engine: Engine, request: GenerateRequest, random_seed: int = 1) -> Answer:
    """The answer to one request that is alone in `engine`."""
    engine.submit(request, random_seed=random_seed)
    return drain(engine)[request.request_id]


def expected_ids(request: GenerateRequest, index: int = 0, random_seed: int = 1) -> list[int]:
    """What sequence `index` should answer, by a plain loop without engine, cache or batch."""
    tokens = list(request.prompt_ids)
    start = len(tokens)
    while len(tokens) - start < request.max_tokens:
        token = _next(request, tokens, start, index, random_seed)
        tokens.append(token)
        if token in request.stop_ids:
            break
    return tokens[start:]


def _next(request: GenerateRequest, tokens: list[int], start: int, index: int, random_seed: int) -> int:
    s = request.sampling
    ids = np.array(tokens, dtype=np.int32)
    row = SamplingRow(
        temperature=s.temperature,
        top_k=s.top_k,
        top_p=s.top_p,
        min_p=s.min_p,
        presence_penalty=s.presence_penalty,
        frequency_penalty=s.frequency_penalty,
        repetition_penalty=s.repetition_penalty,
        logit_bias=s.logit_bias,
        seed=random_seed if s.seed is None else s.seed,
        stream=index,
        position=len(tokens),
        history=History(ids[:start], ids[start:]),
        suppressed=request.stop_ids if len(tokens) - start < request.min_tokens else (),
    )
    return int(sample(logits_after(tokens)[None], [row]).ids[0])
