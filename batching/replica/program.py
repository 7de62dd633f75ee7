"""The engine's Program, made of a compiled one and the sampler. Owns only the timing between steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from batching.engine import Broken, Draw, Outcome, Picked, Score, StepInput
from compiler.runtime.batch import StepBatch
from compiler.runtime.sample import History, Samples, SamplingRow, sample, token_logprobs

Floats = NDArray[np.float32]


class CompiledProgram(Protocol):
    """What `compiler.runtime.load_program` gives: logits, float32 [rows, vocabulary], for each step."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def max_context(self) -> int: ...
    @property
    def block_size(self) -> int: ...
    @property
    def max_batched_tokens(self) -> int: ...
    @property
    def max_sequences(self) -> int: ...
    def step(self, batch: StepBatch) -> Floats: ...
    def close(self) -> None: ...


class HostTime:
    """Seconds between the end of one forward pass and the start of the next, idle time left out."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left_at: float | None = None
        self.total_s = 0.0
        self.count = 0

    def pause(self) -> None:
        """What follows is idle time, until the next forward pass."""
        self._left_at = None

    def enter(self) -> None:
        if self._left_at is not None:
            self.total_s += self._clock() - self._left_at
            self.count += 1

    def leave(self) -> None:
        self._left_at = self._clock()


class SampledProgram:
    """Runs a step and answers its picks from the logits."""

    def __init__(self, program: CompiledProgram, clock: Callable[[], float]) -> None:
        self._program = program
        self.host_time = HostTime(clock)
        self.vocab_size = program.vocab_size
        self.max_context = program.max_context
        self.block_size = program.block_size
        self.max_batched_tokens = program.max_batched_tokens
        self.max_sequences = program.max_sequences

    def step(self, batch: StepInput) -> list[Outcome]:
        """One forward pass, then one outcome a pick."""
        self.host_time.enter()
        logits = self._program.step(
            StepBatch(
                token_ids=batch.token_ids,
                positions=batch.positions,
                sequence_index=batch.sequence_index,
                slots=batch.slots,
                block_tables=batch.block_tables,
                logit_rows=batch.logit_rows,
            )
        )
        self.host_time.leave()
        return _outcomes(logits, batch.picks)

    def warm_up(self) -> bool:
        """Run a prefill and a decode in the null block; whether both gave logits to pick from."""
        prompt = min(4, self.max_batched_tokens, self.block_size - 1)
        return self._warm_step(0, prompt) and self._warm_step(prompt, 1)

    def close(self) -> None:
        self._program.close()

    def _warm_step(self, start: int, count: int) -> bool:
        positions = np.arange(start, start + count, dtype=np.int32)
        logits = self._program.step(
            StepBatch(
                token_ids=np.zeros(count, dtype=np.int32),
                positions=positions,
                sequence_index=np.zeros(count, dtype=np.int32),
                slots=positions,
                block_tables=np.zeros((1, 1), dtype=np.int32),
                logit_rows=np.array([count - 1], dtype=np.int32),
            )
        )
        return bool(np.isfinite(logits.max(axis=1)).all())


def _outcomes(logits: Floats, picks: tuple[Draw | Score, ...]) -> list[Outcome]:
    draws = [i for i, pick in enumerate(picks) if isinstance(pick, Draw)]
    rows = [_row(pick) for pick in picks if isinstance(pick, Draw)]
    samples = sample(logits if len(draws) == len(picks) else logits[draws], rows)
    drawn = iter(_picked(samples))
    return [next(drawn) if isinstance(p, Draw) else _score(logits[i], p) for i, p in enumerate(picks)]


def _row(draw: Draw) -> SamplingRow:
    sampling, history = draw.sampling, draw.history
    return SamplingRow(
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        logit_bias=sampling.logit_bias,
        seed=draw.seed,
        stream=draw.stream,
        position=draw.position,
        history=None if history is None else History(history.prompt_ids, history.output_ids),
        suppressed=draw.suppressed,
        allowed=draw.allowed,
        logprobs=draw.logprobs,
    )


def _picked(samples: Samples) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for token_id, is_valid, report in zip(
        samples.ids.tolist(), samples.is_valid.tolist(), samples.logprobs, strict=True
    ):
        if not is_valid:
            outcomes.append(Broken())
        elif report is None:
            outcomes.append(Picked(token_id))
        else:
            outcomes.append(Picked(token_id, report.logprob, report.top))
    return outcomes


def _score(logits: Floats, score: Score) -> Outcome:
    if not np.isfinite(logits.max()):
        return Broken()
    report = token_logprobs(logits, score.token_id, score.logprobs)
    return Picked(score.token_id, report.logprob, report.top)
