"""`candela run` and `candela bench`: a compiled artifact in this process, without the platform."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import AsJson, print_json, print_table, talk

if TYPE_CHECKING:
    from batching.prompt import PromptProfile
    from batching.replica.local import LocalEngine

run_app = typer.Typer(add_completion=False)
bench_app = typer.Typer(add_completion=False)

ArtifactArgument = Annotated[
    Path,
    typer.Argument(metavar="OUT", help="What `candela compile -o OUT` wrote.", exists=True, file_okay=False),
]
ThreadsOption = Annotated[int | None, typer.Option(min=1, help="Compute threads. Default: all cores.")]
_BLOCK_TOKENS = 16


@run_app.command("run")
def run_artifact(
    out: ArtifactArgument,
    prompt: Annotated[str | None, typer.Option("--prompt", "-p", help="Default: standard input.")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Use the model's chat template.")] = False,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens to generate at most.")] = 128,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 0.0,
    seed: Annotated[int | None, typer.Option(help="Makes sampling repeatable.")] = None,
    threads: ThreadsOption = None,
    as_json: AsJson = False,
) -> None:
    """Generate text with a compiled artifact, without the platform."""
    from batching.prompt import PromptProfile
    from common.wire import Delta, Sampling

    profile = PromptProfile.load(out / "tokenizer")
    ids = _encode(profile, prompt if prompt is not None else sys.stdin.read(), chat)
    room = min(max_tokens, max(profile.context_length - len(ids), 1))
    texts, generated = [], 0
    with _opened(out, len(ids) + room, threads) as engine:
        began = time.perf_counter()
        request = engine.request(ids, max_tokens=room, sampling=Sampling(temperature=temperature, seed=seed))
        for frame in engine.stream(request):
            generated = frame.completion_tokens
            if isinstance(frame, Delta):
                texts.append(frame.text)
                print("" if as_json else frame.text, end="", flush=True)
        took_s = time.perf_counter() - began
    facts: dict[str, Any] = {"prompt_tokens": len(ids), "completion_tokens": generated, "seconds": took_s}
    if as_json:
        return print_json({"text": "".join(texts), **facts})
    print()
    return talk.print(f"{generated} tokens in {took_s:.2f} s, after {len(ids)} of prompt")


@bench_app.command("bench")
def bench_artifact(
    out: ArtifactArgument,
    repeats: Annotated[int, typer.Option(min=1, help="A figure is the median of so many runs.")] = 5,
    threads: ThreadsOption = None,
    as_json: AsJson = False,
) -> None:
    """Measure an artifact on the standard workloads. With --json, one row a line."""
    from batching.replica.workloads import WORKLOADS, run_workloads
    from batching.replica.workloads import as_json as row_json

    longest = max(sequences * (prompt + generated) for sequences, prompt, generated in WORKLOADS)
    with _opened(out, 2 * longest, threads) as engine:
        fitting = [w for w in WORKLOADS if w[1] + w[2] <= engine.max_context]
        if len(fitting) < len(WORKLOADS):
            talk.print(f"left out workloads that do not fit a context of {engine.max_context}")
        rows = [row_json(row) for row in run_workloads(engine, fitting, repeats)]
    if as_json:
        for row in rows:
            print_json(row)
        return
    names = list(dict.fromkeys(name for row in rows for name in row))
    print_table(
        [name.upper() for name in names], ([str(row.get(name, "-")) for name in names] for row in rows)
    )


@contextmanager
def _opened(out: Path, tokens: int, threads: int | None) -> Iterator[LocalEngine]:
    """An engine with room for `tokens`."""
    from batching.replica.local import LocalEngine

    blocks = -(-tokens // _BLOCK_TOKENS) + 1
    engine = LocalEngine(out / "artifact", out / "tokenizer", kv_blocks=blocks, threads=threads)
    try:
        yield engine
    finally:
        engine.close()


def _encode(profile: PromptProfile, text: str, chat: bool) -> Sequence[int]:
    if not chat:
        return profile.encode_prompt(text)
    return profile.encode_chat([{"role": "user", "content": text}], now=datetime.now(UTC)).ids
