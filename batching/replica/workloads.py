"""The standard speed workloads: the same prompts and figures for every engine that is compared.

A workload is (sequences, prompt tokens, output tokens) with random token ids, greedy, end-of-sequence
ignored. `prefill_tok_s` is prompt tokens over time to first token with one sequence; `decode_tok_s` is (out
- 1) over (last - first token) with one sequence; `out_tok_s` is all output tokens over wall time from the
first submit to the last token; `host_ms_between_steps` is the mean time between two forward passes,
sampling included. Each rate is from the median of `repeats` runs.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from batching.replica.local import LocalEngine

WORKLOADS = ((1, 128, 64), (1, 512, 1), (8, 128, 64), (32, 128, 64))
ENGINE = "candela"
_WARM_UP = (1, 16, 4)
_LARGEST_ID = 40_000


@dataclass(frozen=True, slots=True)
class StartRow:
    """From opening the artifact to the end of the first, short answer."""

    engine: str
    start_to_first_token_s: float


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """Figures of one workload; absent where the workload does not show them."""

    engine: str
    sequences: int
    prompt: int
    out: int
    out_tok_s: float
    prefill_tok_s: float | None = None
    decode_tok_s: float | None = None
    host_ms_between_steps: float | None = None


Row = StartRow | WorkloadRow


def as_json(row: Row) -> dict[str, str | int | float]:
    """The row without its absent figures."""
    return {name: value for name, value in asdict(row).items() if value is not None}


def random_prompts(count: int, length: int, vocab_size: int = _LARGEST_ID) -> list[list[int]]:
    """The same random ids in every run and for every engine, as long as the vocabulary has them."""
    rng = random.Random(count * 1000 + length)
    end = min(_LARGEST_ID, vocab_size)
    return [[rng.randrange(10, end) for _ in range(length)] for _ in range(count)]


def run_workloads(
    engine: LocalEngine, workloads: Sequence[tuple[int, int, int]] = WORKLOADS, repeats: int = 5
) -> list[Row]:
    """Run every workload on a freshly opened engine."""
    sequences, length, out = _WARM_UP
    _run(engine, random_prompts(sequences, length, engine.vocab_size), out)
    rows: list[Row] = [StartRow(ENGINE, round(engine.clock() - engine.opened_at_s, 2))]
    rows += [_measure(engine, *workload, repeats) for workload in workloads]
    return rows


def _measure(engine: LocalEngine, sequences: int, length: int, out: int, repeats: int) -> WorkloadRow:
    prompts = random_prompts(sequences, length, engine.vocab_size)
    before_s, before_count = engine.host_time
    total_s = _timed(engine, prompts, out, repeats)
    after_s, after_count = engine.host_time
    gaps = after_count - before_count
    is_single = sequences == 1
    first_s = _timed(engine, prompts, 1, repeats) if is_single else 0.0
    return WorkloadRow(
        engine=ENGINE,
        sequences=sequences,
        prompt=length,
        out=out,
        out_tok_s=round(sequences * out / total_s, 1),
        prefill_tok_s=round(length / first_s, 1) if is_single else None,
        decode_tok_s=round((out - 1) / (total_s - first_s), 1) if is_single and out > 1 else None,
        host_ms_between_steps=round((after_s - before_s) / gaps * 1000, 3) if gaps else None,
    )


def _timed(engine: LocalEngine, prompts: Sequence[Sequence[int]], out: int, repeats: int) -> float:
    samples = []
    for _ in range(repeats):
        start_s = engine.clock()
        _run(engine, prompts, out)
        samples.append(engine.clock() - start_s)
    return statistics.median(samples)


def _run(engine: LocalEngine, prompts: Sequence[Sequence[int]], out: int) -> None:
    engine.complete([engine.request(ids, max_tokens=out, stop_ids=()) for ids in prompts])
