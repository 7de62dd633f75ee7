"""Batching changes nothing: answers beside others, at any chunk size and thread count, equal those alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from batching.engine import Detokenizer, Engine, EngineConfig
from batching.replica.program import SampledProgram
from compiler.runtime import Program
from loadtest.checks.report import Finding
from loadtest.checks.traffic import Arrival, Outcome, differences, missing, play, play_alone

_NAN_BITS = {2: 0x7FC0, 4: 0x7FC00000}


@dataclass(frozen=True, slots=True)
class Variation:
    """How an engine is set up, beside the requests."""

    label: str
    threads: int
    max_batched_tokens: int
    kv_blocks: int
    preempts: bool = False
    """The pool is too small for all, so that some must be preempted."""


def check_batching(
    load: Callable[[int], Program],
    detokenizer: Detokenizer,
    arrivals: Sequence[Arrival],
    variations: Sequence[Variation],
) -> list[Finding]:
    """Play the arrivals together in every variation; compare with each alone, in the first one.

    `load(threads)` opens the program. Every cache starts full of NaN: what a request did not write itself
    must not matter to it.
    """
    findings: list[Finding] = []
    alone: Outcome | None = None
    for threads in sorted({v.threads for v in variations}):
        with load(threads) as program:
            poison(program)
            mine = [v for v in variations if v.threads == threads]
            if alone is None:
                alone = play_alone(_engine(program, detokenizer, mine[0]), arrivals)
            for variation in mine:
                poison(program)
                together = play(_engine(program, detokenizer, variation), arrivals)
                findings += _findings(variation, together, alone, arrivals)
    return findings


def poison(program: Program) -> None:
    """Fill the key-value cache with NaN."""
    for layer in range(program.model.kv.layers):
        for name in (f"k_cache.{layer}", f"v_cache.{layer}"):
            cache = program.cache(name)
            bits = cache.view(np.dtype(f"u{cache.itemsize}"))
            bits[...] = _NAN_BITS[cache.itemsize]


def _engine(program: Program, detokenizer: Detokenizer, variation: Variation) -> Engine:
    config = EngineConfig(
        kv_blocks=min(variation.kv_blocks, program.kv_blocks - 1),
        max_sequences=min(program.max_sequences, variation.max_batched_tokens),
        max_batched_tokens=variation.max_batched_tokens,
    )
    return Engine(config, SampledProgram(program, lambda: 0.0), detokenizer)


def _findings(
    variation: Variation, together: Outcome, alone: Outcome, arrivals: Sequence[Arrival]
) -> Iterator[Finding]:
    name = f"batching, {variation.label}"
    wrong = (*differences(together, alone), *missing(together, arrivals))
    count = len(together.answers)
    yield Finding(
        name, "answers that differ from the answer alone", f"{len(wrong)} of {count}", "0", not wrong, wrong
    )
    stats = together.stats
    yield Finding(
        name, "KV blocks in use afterwards", str(stats.kv_blocks_used), "0", not stats.kv_blocks_used
    )
    yield Finding(name, "aborts", str(stats.aborts), ">= 1", stats.aborts >= 1)
    yield Finding(
        name, "most sequences in a step", str(together.widest_step), ">= 2", together.widest_step >= 2
    )
    if variation.preempts:
        yield Finding(name, "preemptions", str(stats.preemptions), ">= 1", stats.preemptions >= 1)
