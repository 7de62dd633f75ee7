"""`candela compile`: a checkpoint to an artifact on this machine, without the platform."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from .output import AsJson, print_json, talk

if TYPE_CHECKING:
    from compiler.pipeline import CompileReport
    from compiler.pipeline import Progress as CompileProgress

app = typer.Typer(add_completion=False)


@app.command("compile")
def compile_checkpoint(
    path: Annotated[Path, typer.Argument(exists=True, help="A checkpoint directory, or a GGUF file.")],
    out: Annotated[Path, typer.Option("--output", "-o", help="Where artifact/ and tokenizer/ are written.")],
    dtype: Annotated[str | None, typer.Option(help="Compute type: bf16 or f32.")] = None,
    budget: Annotated[str | None, typer.Option(help="Search budget: none, quick, full, or seconds.")] = None,
    target: Annotated[
        str | None, typer.Option(help="What to compile for: cpu, or a GPU such as cuda-sm90.")
    ] = None,
    max_context: Annotated[int | None, typer.Option(help="Longest context to compile for.")] = None,
    journal: Annotated[
        Path | None,
        typer.Option(help="A file that lets a compile that was broken off go on.", dir_okay=False),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(help="CPU levels, comma-separated, e.g. x86-64-v3,x86-64-v4. Default: this CPU's best."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile a checkpoint into an artifact, without the platform."""
    chosen: dict[str, Any] = {"dtype": dtype, "budget": _budget(budget), "target": target}
    chosen["max_context"] = max_context
    began = time.perf_counter()
    if target not in (None, "cpu"):
        if budget is not None:
            raise typer.BadParameter("kernels for a GPU are not searched here: leave --budget out")
        if journal is not None or level is not None:
            raise typer.BadParameter("kernels for a GPU are not searched here: no --journal, no --level")
        return _compile_kernels(path, out, chosen, as_json=as_json)
    chosen |= {"journal": journal, "level": level}
    report = _compile(path, out, {key: value for key, value in chosen.items() if value is not None})
    if as_json:
        return print_json(report)
    print(out / "artifact")
    took = f"{time.perf_counter() - began:.0f} s (a valid program after {report.first_valid_s:.0f} s)"
    return talk.print(f"compiled in {took}; try: candela run {out} --prompt ...")


def _compile(path: Path, out: Path, options: dict[str, Any]) -> CompileReport:
    """Write the tokenizer first, since a checkpoint without one is refused in a moment."""
    from batching.prompt.export import write_tokenizer_dir
    from compiler import pipeline
    from compiler.checkpoint import inspect_directory

    _show_what_is_refused(os.environ.get("CANDELA_DEBUG", ""))
    info = inspect_directory(path)
    write_tokenizer_dir(info.directory, out / "tokenizer", info.gguf_metadata)
    with _interrupt() as stop, _bar() as progress:
        bar = progress.add_task("compile", total=1.0)

        def show(step: CompileProgress) -> None:
            caption = f"{step.stage}: {step.message}" if step.message else step.stage
            progress.update(bar, description=caption[:60], completed=step.fraction)

        wanted = pipeline.CompileOptions(**options, compiler=os.environ.get("CXX"))
        return pipeline.compile_checkpoint(path, out / "artifact", wanted, show, stop.is_set)


def _show_what_is_refused(debug: str) -> None:
    """From CANDELA_DEBUG=1 on, what the gate refuses is named, with the folder that it is kept in."""
    if debug.isdigit() and int(debug) >= 1:
        logging.basicConfig(stream=sys.stderr, format="%(message)s")
        logging.getLogger("compiler.search").setLevel(logging.INFO)


def _compile_kernels(path: Path, out: Path, chosen: dict[str, Any], *, as_json: bool) -> None:
    """Kernels alone, in a folder named after the GPU; not searched, since that needs the GPU's own clock."""
    from compiler.codegen.triton import compile_checkpoint_kernels

    options = {k: v for k, v in chosen.items() if v is not None and k not in ("budget", "target")}
    with _interrupt() as stop, _bar() as progress:
        bar = progress.add_task("compile", total=1.0)

        def show(fraction: float, message: str) -> None:
            progress.update(bar, description=message[:60], completed=fraction)

        report = compile_checkpoint_kernels(
            path,
            out / chosen["target"],
            chosen["target"],
            on_progress=show,
            should_stop=stop.is_set,
            **options,
        )
    if as_json:
        return print_json(report)
    return print(report.directory)


def _budget(text: str | None) -> str | float | None:
    """A number is seconds; a name stays a name, which the compiler checks."""
    try:
        return float(text) if text is not None else None
    except ValueError:
        return text


@contextmanager
def _interrupt() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets: the compiler stops at its next step. A second one interrupts."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        talk.print("stopping at the next step; Ctrl-C again stops at once")

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    return Progress(*columns, TimeElapsedColumn(), console=talk)
