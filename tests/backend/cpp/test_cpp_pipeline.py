"""A checkpoint becomes an artifact that answers as transformers does; a compile that fails leaves nothing."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from compiler.checkpoint import CheckpointError
from compiler.errors import CompilerError
from compiler.ir import Dim, DType, bf16_to_f32, bounds, itemsize, round_to_bf16, symbol
from compiler.ir.dim import parse_size
from compiler.pipeline import BadOption, CompileOptions, CompileReport, Progress, compile_checkpoint
from compiler.runtime import Program, StepBatch, load_program
from compiler.search.program import Stopped
from tests.support.llama_oracle import oracle_logits, oracle_model
from tests.support.paged_steps import Chunk, PagedBatches, chunked_schedule
from tests.support.tiny_checkpoints import TINY, VOCAB_SIZE, tiny_tensors, write_tiny_checkpoint

LENGTHS = (75, 40, 17, 3)
BLOCKS = 16
OPTIONS = CompileOptions(max_context=96, max_batched_tokens=64, max_sequences=4, threads=2)


class Compiled:
    """An artifact of a tiny checkpoint, and what its compile said."""

    def __init__(self, root: Path, variant: str, options: CompileOptions) -> None:
        self.variant, self.artifact = variant, root / "artifact"
        self.progress: list[Progress] = []
        checkpoint = write_tiny_checkpoint(root / "hf", variant)
        self.report: CompileReport = compile_checkpoint(
            checkpoint, self.artifact, options, self.progress.append
        )

    def program(self, threads: int = 2) -> Program:
        return load_program(self.artifact, threads=threads, kv_blocks=BLOCKS)


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("objects")


@pytest.fixture(
    scope="session",
    params=[("gqa", "f32", "none"), ("plain", "bf16", "none")],
    ids=lambda p: "-".join(p),
)
def compiled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cache_dir: Path
) -> Compiled:
    variant, dtype, budget = request.param
    options = replace(OPTIONS, dtype=dtype, budget=budget, cache_dir=cache_dir)
    return Compiled(tmp_path_factory.mktemp(f"{variant}-{dtype}"), variant, options)


def sequences() -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, VOCAB_SIZE, n).tolist() for n in LENGTHS]


def run(program: Program, steps: list[list[Chunk]], seed: int = 0) -> list[np.ndarray]:
    """Logits of every position, through a cache whose blocks are handed out in a shuffled order."""
    batches = PagedBatches(sequences(), blocks=BLOCKS, seed=seed)
    rows: list[dict[int, np.ndarray]] = [{} for _ in LENGTHS]
    for step in steps:
        arrays = batches.arrays(step)
        batch = StepBatch(
            arrays["tokens"],
            arrays["positions"],
            arrays["sequence"],
            arrays["slots"],
            arrays["block_tables"],
            arrays["logit_rows"],
        )
        where = [(c.sequence, p) for c in step for p in range(c.start, c.start + c.length)]
        for (sequence, position), logits in zip(where, program.step(batch), strict=True):
            rows[sequence][position] = np.array(logits)
    return [np.stack([found[p] for p in sorted(found)]) for found in rows]


@pytest.fixture
def program(compiled: Compiled) -> Iterator[Program]:
    made = compiled.program()
    yield made
    made.close()


def error(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    scale = max(float(np.abs(t).max()) for t in theirs)
    return max(float(np.abs(o - t).max()) for o, t in zip(ours, theirs, strict=True)) / scale


def test_chunked_prefill_and_decode_give_the_logits_of_transformers(
    compiled: Compiled, program: Program
) -> None:
    spec = TINY[compiled.variant]
    stored = {k: bf16_to_f32(round_to_bf16(v)) for k, v in tiny_tensors(spec).items()}
    exact = oracle_logits(oracle_model(spec, stored), sequences())
    found = error(run(program, chunked_schedule(LENGTHS, 13, 4)), exact)
    is_f32 = compiled.report.kernels and "f32" in str(compiled.report.model["kv"])
    eager = error(oracle_logits(oracle_model(spec, stored, torch.bfloat16), sequences()), exact)
    assert found < (1e-5 if is_f32 else eager)


def test_how_a_prompt_is_cut_into_steps_changes_no_bit(program: Program) -> None:
    whole = run(program, chunked_schedule(LENGTHS, 60, 1))
    assert all(
        np.array_equal(a, b)
        for chunk in (1, 7, 16)
        for a, b in zip(run(program, chunked_schedule(LENGTHS, chunk, 1), seed=chunk), whole, strict=True)
    )


def test_the_number_of_threads_changes_no_bit(compiled: Compiled, program: Program) -> None:
    steps = chunked_schedule(LENGTHS, 29, 3)
    single = compiled.program(threads=1)
    pairs = list(zip(run(single, steps), run(program, steps), strict=True))
    single.close()
    assert all(np.array_equal(a, b) for a, b in pairs)


def test_progress_only_grows_and_ends_at_one(compiled: Compiled) -> None:
    fractions = [p.fraction for p in compiled.progress]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    stages = list(dict.fromkeys(p.stage for p in compiled.progress))
    assert stages == ["inspect", "search", "build", "pack", "prove", "done"]


def test_the_report_counts_what_was_done(compiled: Compiled) -> None:
    report = compiled.report
    kept = json.loads((compiled.artifact / "report.json").read_text())
    assert kept["candidates"] == report.candidates == len(report.kernels) >= report.distinct
    assert report.definitions > report.distinct
    memory = report.memory
    assert int(str(memory["arena_bytes"])) >= int(str(memory["peak_live_bytes"])) > 0


def test_no_buffer_of_the_arena_grows_with_rows_times_context(compiled: Compiled) -> None:
    """Scores live in tiles: what is kept has T rows of a fixed width."""
    shapes = [
        b["shape"]
        for p in body_of(compiled.artifact)["programs"]
        for b in p["buffers"]
        if b["kind"] == "arena"
    ]
    assert shapes
    assert not any("M" in size for shape in shapes for size in map(str, shape))


def test_values_that_are_needed_together_share_no_byte(compiled: Compiled) -> None:
    """From the manifest alone: bytes of the arena against the stages in which launches name them."""
    body = body_of(compiled.artifact)
    (program,) = body["programs"]
    most = {d["name"]: symbol(d["name"], d["low"], d["high"]) for d in body["dims"]}
    arena = {b["name"]: span(b, most) for b in program["buffers"] if b["kind"] == "arena"}
    for bucket in program["buckets"]:
        live = stages_of(bucket["launches"], arena)
        clashes = [
            (a, b)
            for a, b in itertools.combinations(live, 2)
            if meet(live[a], live[b]) and meet(arena[a], arena[b])
        ]
        assert clashes == []
        assert live.keys() == arena.keys()


def span(buffer: Any, symbols: dict[str, Dim]) -> tuple[int, int]:
    """First and last byte of a buffer at its largest."""
    elements = 1
    for size in buffer["shape"]:
        elements *= bounds(parse_size(str(size), symbols))[1]
    return buffer["offset"], buffer["offset"] + elements * itemsize(DType(buffer["dtype"])) - 1


def stages_of(launches: Any, arena: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """First and last stage that names each buffer."""
    found: dict[str, list[int]] = {}
    stage = 0
    for launch in launches:
        for name in launch["args"]:
            found.setdefault(name, []).append(stage)
        stage += launch["stage_end"]
    return {name: (min(at), max(at)) for name, at in found.items() if name in arena}


def meet(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def test_a_searched_program_answers_as_transformers_does(tmp_path: Path, cache_dir: Path) -> None:
    options = replace(OPTIONS, dtype="f32", budget="quick", cache_dir=cache_dir, max_batched_tokens=16)
    made = Compiled(tmp_path, "odd_heads", options)
    program = made.program()
    spec = TINY["odd_heads"]
    stored = {k: bf16_to_f32(round_to_bf16(v)) for k, v in tiny_tensors(spec).items()}
    found = run(program, chunked_schedule(LENGTHS, 4, 1))
    program.close()
    assert error(found, oracle_logits(oracle_model(spec, stored), sequences())) < 1e-5
    assert made.report.moves
    assert any(k["measured_s"] for k in made.report.kernels)


def body_of(artifact: Path) -> Any:
    return json.loads((artifact / "manifest.json").read_text())["body"]


# Repeatable


@pytest.mark.pitfall("C30")
def test_the_model_alone_decides_the_same_twice(tmp_path: Path, cache_dir: Path) -> None:
    options = replace(OPTIONS, dtype="f32", budget="none", cache_dir=cache_dir)
    first, second = (Compiled(tmp_path / name, "gqa", options).artifact for name in ("a", "b"))
    assert body_of(first)["programs"] == body_of(second)["programs"]
    assert body_of(first)["weights"] == body_of(second)["weights"]


# Ended early


@pytest.mark.parametrize("calls", [0, 3, 40])
def test_a_stopped_compile_leaves_nothing_behind(tmp_path: Path, cache_dir: Path, calls: int) -> None:
    checkpoint = write_tiny_checkpoint(tmp_path / "hf", "gqa")
    options = replace(OPTIONS, dtype="f32", budget="none", cache_dir=cache_dir)
    with pytest.raises(Stopped):
        compile_checkpoint(checkpoint, tmp_path / "out", options, should_stop=after(calls))
    assert [p.name for p in tmp_path.iterdir()] == ["hf"]


def test_a_compile_stopped_inside_the_toolchain_is_stopped_too(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    checkpoint = write_tiny_checkpoint(tmp_path / "hf", "gqa")
    nothing_built = replace(OPTIONS, budget="none", cache_dir=tmp_path_factory.mktemp("empty"))
    with pytest.raises(Stopped):
        compile_checkpoint(checkpoint, tmp_path / "out", nothing_built, should_stop=after(2))
    assert [p.name for p in tmp_path.iterdir()] == ["hf"]


def after(calls: int) -> Callable[[], bool]:
    """Says stop from the call of that number on."""
    left = iter(range(calls))

    def should_stop() -> bool:
        return next(left, None) is None

    return should_stop


@pytest.mark.parametrize(
    "wrong",
    [
        {"dtype": "f64"},
        {"target": "tpu"},
        {"budget": "soon"},
        {"level": "x86-64-v9"},
        {"max_context": -1},
    ],
    ids=str,
)
def test_options_that_mean_nothing_are_refused_before_any_work(
    tmp_path: Path, wrong: dict[str, object]
) -> None:
    checkpoint = write_tiny_checkpoint(tmp_path / "hf", "gqa")
    with pytest.raises(CompilerError) as caught:
        compile_checkpoint(checkpoint, tmp_path / "out", replace(OPTIONS, cache_dir=tmp_path, **wrong))  # type: ignore[arg-type]
    assert caught.value.code in ("invalid_option", "unsupported_model")
    assert not (tmp_path / "out").exists()


def test_bad_options_have_their_own_class(tmp_path: Path) -> None:
    checkpoint = write_tiny_checkpoint(tmp_path / "hf", "gqa")
    with pytest.raises(BadOption, match="f64"):
        compile_checkpoint(checkpoint, tmp_path / "out", replace(OPTIONS, dtype="f64"))


def test_a_broken_checkpoint_is_refused_first(tmp_path: Path) -> None:
    checkpoint = write_tiny_checkpoint(tmp_path / "hf", "gqa")
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(CheckpointError):
        compile_checkpoint(checkpoint, tmp_path / "out", OPTIONS)
    assert not (tmp_path / "out").exists()
