"""Candela beside transformers eager bf16: same machine, same checkpoint, one run, as a table.

    python -m loadtest.bench.main [--cache .cache] [--fresh] [--write README.md]

Obtains SmolLM2-135M-Instruct, writes it as a Hugging Face directory, compiles it, and runs both engines on
the standard workloads, each in a process of its own, one after the other; a figure is the median of five.
Exits 1 when a target is missed: decoding one sequence 2 times, and 8 x (128 in + 64 out) 1.5 times as fast.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from loadtest.checkpoints.compiled import compiled
from loadtest.checkpoints.smollm2 import obtain

Row = Mapping[str, Any]
_ROOT = Path(__file__).resolve().parents[2]
_BEGIN, _END = "<!-- bench:begin -->", "<!-- bench:end -->"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. `target` is the least ratio to the peer that is promised."""

    label: str
    sequences: int
    prompt: int
    out: int
    key: str
    unit: str
    target: float | None = None


FIGURES = (
    Figure("1 sequence, 128 in, 64 out", 1, 128, 64, "decode_tok_s", "decode tok/s", target=2.0),
    Figure("1 sequence, 128 in", 1, 128, 64, "prefill_tok_s", "prefill tok/s"),
    Figure("1 sequence, 512 in", 1, 512, 1, "prefill_tok_s", "prefill tok/s"),
    Figure("8 x (128 in + 64 out)", 8, 128, 64, "out_tok_s", "output tok/s", target=1.5),
    Figure("32 x (128 in + 64 out)", 32, 128, 64, "out_tok_s", "output tok/s"),
)


@dataclass(frozen=True, slots=True)
class Comparison:
    figure: Figure
    peer: float
    ours: float

    @property
    def ratio(self) -> float:
        return self.ours / self.peer

    @property
    def is_met(self) -> bool:
        return self.figure.target is None or self.ratio >= self.figure.target


def main(
    cache: Annotated[Path, typer.Option(help="Where checkpoint and artifact are kept.")] = Path(".cache"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Compile again.")] = False,
    write: Annotated[
        Path | None, typer.Option(help="Put the table into this file, between its marks.")
    ] = None,
) -> None:
    """Measure, print the table, exit 1 when a target is missed."""
    checkpoint = obtain(cache).folder
    artifact = compiled(checkpoint, cache / "bench" / "artifact", is_fresh=fresh)
    peer = _rows([sys.executable, "-m", "loadtest.bench.peers", "hf", str(checkpoint)])
    ours = _rows([sys.executable, "-m", "candela.cli", "bench", str(artifact), "--json"])
    comparisons = compare(peer, ours)
    table = render(comparisons)
    print(table)
    print(host_time(ours))
    if write is not None:
        write.write_text(replace_table(write.read_text(encoding="utf-8"), table), encoding="utf-8")
    missed = targets_missed(comparisons)
    for sentence in missed:
        print(f"missed: {sentence}")
    raise typer.Exit(1 if missed else 0)


def compare(peer: Sequence[Row], ours: Sequence[Row]) -> list[Comparison]:
    """Pair the figures of both runs; one that a run lacks is left out."""
    pairs = ((figure, _find(peer, figure), _find(ours, figure)) for figure in FIGURES)
    return [Comparison(f, left, right) for f, left, right in pairs if left is not None and right is not None]


def targets_missed(comparisons: Sequence[Comparison]) -> list[str]:
    """A sentence for every promise that was not kept; a figure that was not measured keeps none."""
    found = {c.figure: c for c in comparisons}
    missed = []
    for figure in FIGURES:
        if figure.target is not None and figure not in found:
            missed.append(f"{figure.label}: not measured")
        elif figure in found and not found[figure].is_met:
            missed.append(f"{figure.label}: {found[figure].ratio:.2f} < {figure.target}")
    return missed


def render(comparisons: Sequence[Comparison]) -> str:
    """A Markdown table."""
    head = (
        "| workload | figure | transformers eager bf16 | Candela bf16 | ratio |",
        "| --- | --- | ---: | ---: | ---: |",
    )
    lines = (
        f"| {c.figure.label} | {c.figure.unit} | {c.peer:,.0f} | {c.ours:,.0f} | {c.ratio:.1f} |"
        for c in comparisons
    )
    return "\n".join((*head, *lines))


def replace_table(text: str, table: str) -> str:
    """`text` with what stands between its marks replaced."""
    before, rest = text.split(_BEGIN, 1)
    after = rest.split(_END, 1)[1]
    return f"{before}{_BEGIN}\n{table}\n{_END}{after}"


def host_time(ours: Sequence[Row]) -> str:
    """Time between two Program calls, sampling included, for each workload."""
    spent = [
        f"{row['sequences']} x ({row['prompt']} + {row['out']}): {row['host_ms_between_steps']:.2f} ms"
        for row in ours
        if "host_ms_between_steps" in row
    ]
    return "host time between two steps, sampling included: " + "; ".join(spent)


def _find(rows: Sequence[Row], figure: Figure) -> float | None:
    shape = (figure.sequences, figure.prompt, figure.out)
    for row in rows:
        if (row.get("sequences"), row.get("prompt"), row.get("out")) == shape:
            value = row.get(figure.key)
            return None if value is None else float(value)
    return None


def _rows(command: Sequence[str]) -> list[Row]:
    """Run an engine and read its JSON lines, showing them as they come."""
    rows = []
    for line in _lines(command):
        print(line, file=sys.stderr, flush=True)
        rows.append(json.loads(line))
    return rows


def _lines(command: Sequence[str]) -> Iterator[str]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=_ROOT) as process:
        assert process.stdout is not None, "a pipe was asked for"
        for line in process.stdout:
            if line.startswith("{"):
                yield line.rstrip()
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed with {process.returncode}")


if __name__ == "__main__":
    typer.run(main)
