"""Right answers on a real model: `python -m loadtest.checks.main [--cache .cache] [--only NAME ...]`.

Obtains SmolLM2-135M-Instruct in both forms, compiles it (bf16 and f32), and holds the programs against
transformers, against each other and against themselves in a batch. Prints a table; exits 1 when a bound is
missed. Needs the dev extra and some 4 GB of memory; takes minutes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Annotated

import torch
import typer

from batching.prompt import PromptProfile
from batching.replica.local import LocalEngine
from compiler.runtime import Program, load_program
from loadtest.checkpoints.compiled import compiled
from loadtest.checkpoints.smollm2 import obtain
from loadtest.checks.answers import check_greedy, check_logits
from loadtest.checks.batching import Variation, check_batching
from loadtest.checks.forms import check_forms, check_tokens
from loadtest.checks.peer import Peer
from loadtest.checks.report import Finding, render, unmet
from loadtest.checks.texts import read_prompts, read_token_texts
from loadtest.checks.traffic import Sizes, draw_arrivals

_CONTEXT = 2048
_KV_BLOCKS = 512
_SEED = 1
_SIZES = Sizes(vocab_size=49_152, longest_prompt=400, longest_answer=64, window_steps=40)
_TEAMS = ((1, "1 thread"), (2, "2 threads"))
_VARIATIONS = tuple(
    variation
    for threads, team in _TEAMS
    for variation in (
        Variation(f"{team}, 512 tokens a step", threads, 512, _KV_BLOCKS),
        Variation(f"{team}, 37 tokens a step", threads, 37, _KV_BLOCKS),
        Variation(f"{team}, 64 tokens a step, 40 blocks", threads, 64, 40, preempts=True),
    )
)


class Bench:
    """The model in every form that a check asks for, each made once."""

    def __init__(self, cache: Path, is_fresh: bool) -> None:
        self._cache = cache
        self._is_fresh = is_fresh
        self.forms = obtain(cache)

    @cached_property
    def bf16(self) -> Path:
        return self._compiled(self.forms.folder, "bf16")

    @cached_property
    def f32(self) -> Path:
        return self._compiled(self.forms.folder, "f32")

    @cached_property
    def gguf(self) -> Path:
        return self._compiled(self.forms.gguf, "bf16", "gguf")

    @cached_property
    def profile(self) -> PromptProfile:
        return PromptProfile.load(self.bf16 / "tokenizer")

    @cached_property
    def prompts(self) -> list[list[int]]:
        return [prompt.ids(self.profile) for prompt in read_prompts()]

    @cached_property
    def reference(self) -> Peer:
        return Peer(self.forms.folder, torch.float32)

    def load(self, out: Path, threads: int | None = None) -> Program:
        return load_program(out / "artifact", threads=threads, kv_blocks=_KV_BLOCKS + 1)

    def _compiled(self, checkpoint: Path, dtype: str, name: str | None = None) -> Path:
        out = self._cache / "checks" / (name or dtype)
        return compiled(checkpoint, out, dtype=dtype, max_context=_CONTEXT, is_fresh=self._is_fresh)


def logits(bench: Bench) -> list[Finding]:
    eager = Peer(bench.forms.folder, torch.bfloat16)
    with bench.load(bench.bf16) as program:
        return check_logits(program, bench.reference, eager, bench.prompts)


def greedy(bench: Bench) -> list[Finding]:
    engine = LocalEngine(bench.f32 / "artifact", bench.f32 / "tokenizer", kv_blocks=_KV_BLOCKS)

    def complete(prompts: Sequence[Sequence[int]], counts: Sequence[int]) -> list[list[int]]:
        pairs = zip(prompts, counts, strict=True)
        requests = [engine.request(ids, max_tokens=count, stop_ids=()) for ids, count in pairs]
        return [answers[0].ids for answers in engine.complete(requests)]

    with closing(engine):
        return check_greedy(complete, bench.reference, bench.prompts)


def forms(bench: Bench) -> list[Finding]:
    with bench.load(bench.bf16) as first, bench.load(bench.gguf) as second:
        return check_forms(first, second, bench.prompts)


def tokens(bench: Bench) -> list[Finding]:
    folders = {"safetensors": bench.bf16, "GGUF": bench.gguf}
    profiles = {form: PromptProfile.load(out / "tokenizer") for form, out in folders.items()}
    return check_tokens(bench.forms.folder, profiles, read_token_texts())


def batching(bench: Bench) -> list[Finding]:
    arrivals = draw_arrivals(_SEED, _SIZES)
    tokenizer = bench.profile.tokenizer
    return check_batching(lambda n: bench.load(bench.bf16, n), tokenizer, arrivals, _VARIATIONS)


CHECKS: dict[str, Callable[[Bench], list[Finding]]] = {
    "tokens": tokens,
    "logits": logits,
    "greedy": greedy,
    "forms": forms,
    "batching": batching,
}


def main(
    cache: Annotated[Path, typer.Option(help="Where checkpoint and artifacts are kept.")] = Path(".cache"),
    only: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(CHECKS)}; all.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compile again.")] = False,
) -> None:
    """Run the checks, print the table, exit 1 when a bound is missed."""
    unknown = set(only or ()) - set(CHECKS)
    if unknown:
        raise typer.BadParameter(f"there is no check {', '.join(sorted(unknown))}", param_hint="--only")
    bench = Bench(cache, fresh)
    findings = list(_run(bench, only or list(CHECKS)))
    print(render(findings))
    raise typer.Exit(1 if unmet(findings) else 0)


def _run(bench: Bench, names: Sequence[str]) -> Iterator[Finding]:
    """The findings of the named checks; how long each took, and on what, goes to standard error."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{os.cpu_count()} cores, load {load}", file=sys.stderr)
    for name in names:
        began = time.perf_counter()
        yield from CHECKS[name](bench)
        print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    typer.run(main)
