"""Loading an artifact of hand-written kernels and running steps of it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compiler.artifact import ArtifactError, decode_manifest, encode_manifest
from compiler.codegen.toolchain import Toolchain
from compiler.runtime import (
    LoadFailed,
    Program,
    ProgramClosed,
    ProgramError,
    StepBatch,
    StepRefused,
    load_program,
)
from compiler.runtime.cpu import PORTABLE, X86_64_V4_AMX, UnsupportedCpu, best_level, host_features
from tests.support.tiny_program import (
    BLOCK,
    CONTEXT,
    MAX_SEQUENCES,
    MAX_TOKENS,
    VOCABULARY,
    TinyWeights,
    batch_of,
    write_tiny_artifact,
)

FIRST, SECOND = [3, 1, 4, 1, 5, 9, 2, 6], [60, 7, 19]
TABLES = [[2, 4], [1, 0]]


@pytest.fixture
def program(artifact: Path) -> Iterator[Program]:
    with load_program(artifact, threads=2, kv_blocks=5) as loaded:
        yield loaded


def expected(*histories: list[int]) -> np.ndarray:
    weights = TinyWeights.random()
    return np.stack([weights.logits(tokens) for tokens in histories])


def test_a_step_answers_with_the_logits_of_each_wanted_row(program: Program) -> None:
    logits = program.step(batch_of([(0, FIRST, 8), (1, SECOND, 3)], TABLES, wanted=[7, 10]))
    assert np.allclose(logits, expected(FIRST, SECOND), rtol=1e-6, atol=1e-5)


def test_the_cache_lasts_from_step_to_step(program: Program) -> None:
    program.step(batch_of([(0, FIRST[:5], 5)], TABLES[:1]))
    logits = program.step(batch_of([(0, FIRST[:6], 1)], TABLES[:1]))
    assert np.allclose(logits, expected(FIRST[:6]), rtol=1e-6, atol=1e-5)


def test_a_step_may_want_no_logits(program: Program) -> None:
    assert program.step(batch_of([(0, FIRST, 8)], TABLES, wanted=[])).shape == (0, VOCABULARY)


def test_logits_are_overwritten_by_the_next_step(program: Program) -> None:
    kept = program.step(batch_of([(0, FIRST, 8)], TABLES, wanted=[7]))
    program.step(batch_of([(1, SECOND, 3)], TABLES, wanted=[2]))
    assert np.allclose(kept, expected(SECOND), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 3, 5])
def test_the_number_of_threads_changes_no_bit(program: Program, artifact: Path, threads: int) -> None:
    batch = batch_of([(0, FIRST, 8), (1, SECOND, 3)], TABLES)
    with load_program(artifact, threads=threads, kv_blocks=5) as other:
        assert np.array_equal(other.step(batch), program.step(batch))


@pytest.mark.pitfall("S8")
def test_neighbours_change_no_bit(program: Program) -> None:
    together = program.step(batch_of([(0, FIRST, 8), (1, SECOND, 3)], TABLES, wanted=[10])).copy()
    assert np.array_equal(program.step(batch_of([(0, SECOND, 3)], [TABLES[1]], wanted=[2])), together)


def test_a_program_knows_its_model(program: Program) -> None:
    facts = (program.vocab_size, program.max_context, program.block_size)
    assert facts == (VOCABULARY, CONTEXT, BLOCK)
    assert (program.max_batched_tokens, program.max_sequences) == (MAX_TOKENS, MAX_SEQUENCES)
    assert (program.level, program.threads, program.kv_blocks) == ("portable", 2, 5)


def test_a_cache_can_be_looked_at(program: Program) -> None:
    program.step(batch_of([(1, SECOND, 3)], TABLES))
    assert program.cache("cache").shape == (5, BLOCK)
    assert program.cache("cache")[1, :4].tolist() == [61, 8, 20, 0]


def test_a_cache_that_is_not_there_is_refused(program: Program) -> None:
    with pytest.raises(ProgramError, match="k_cache"):
        program.cache("k_cache")


def test_a_timed_step_names_every_kernel(program: Program) -> None:
    times = program.run_timed(batch_of([(0, FIRST, 8)], TABLES))
    assert [t.kernel for t in times] == ["k_rows", "k_store", "k_history", "k_logits"]
    assert all(t.seconds > 0 for t in times)


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


GOOD = batch_of([(0, FIRST[:2], 2)], TABLES)
REFUSED = {
    "no tokens": (batch_of([], TABLES), "token_ids"),
    "too many tokens": (
        batch_of([(0, [1] * (MAX_TOKENS + 1), MAX_TOKENS + 1)], TABLES, wanted=[]),
        "token_ids",
    ),
    "too many sequences": (replace(GOOD, block_tables=np.zeros((4, 2), np.int32)), "block_tables"),
    "too wide a table": (replace(GOOD, block_tables=np.zeros((1, 5), np.int32)), "block_tables"),
    "a token beyond the vocabulary": (replace(GOOD, token_ids=ints(0, VOCABULARY)), "token_ids"),
    "a negative token": (replace(GOOD, token_ids=ints(-1, 0)), "token_ids"),
    "a position beyond the table": (replace(GOOD, positions=ints(0, 2 * BLOCK)), "positions"),
    "a slot beyond the cache": (replace(GOOD, slots=ints(0, 5 * BLOCK)), "slots"),
    "a block beyond the cache": (replace(GOOD, block_tables=np.full((2, 2), 5, np.int32)), "block_tables"),
    "a sequence without a table": (replace(GOOD, sequence_index=ints(0, 2)), "sequence_index"),
    "a logit row beyond the tokens": (replace(GOOD, logit_rows=ints(2)), "logit_rows"),
    "positions of another length": (replace(GOOD, positions=ints(0)), "positions"),
    "64-bit tokens": (replace(GOOD, token_ids=np.array([1, 2])), "token_ids"),
    "a flat table": (replace(GOOD, block_tables=ints(0)), "block_tables"),
    "a strided table": (replace(GOOD, block_tables=np.zeros((2, 4), np.int32)[:, ::2]), "block_tables"),
}


@pytest.mark.parametrize(("batch", "field"), REFUSED.values(), ids=REFUSED.keys())
def test_a_batch_outside_the_program_is_refused_by_name(
    program: Program, batch: StepBatch, field: str
) -> None:
    with pytest.raises(StepRefused) as caught:
        program.step(batch)
    assert caught.value.field == field


def test_a_refused_step_leaves_the_program_usable(program: Program) -> None:
    with pytest.raises(StepRefused):
        program.step(replace(GOOD, token_ids=ints(0, VOCABULARY)))
    assert np.allclose(program.step(GOOD), expected(FIRST[:1], FIRST[:2]), rtol=1e-6, atol=1e-5)


def test_a_closed_program_runs_nothing(artifact: Path) -> None:
    program = load_program(artifact, threads=2, kv_blocks=5)
    logits = program.step(GOOD)
    program.close()
    program.close()
    assert np.allclose(logits, expected(FIRST[:1], FIRST[:2]), rtol=1e-6, atol=1e-5)
    with pytest.raises(ProgramClosed):
        program.step(GOOD)


@pytest.mark.parametrize("kv_blocks", [0, -1, 1001])
def test_a_cache_of_an_impossible_size_is_refused(artifact: Path, kv_blocks: int) -> None:
    with pytest.raises(LoadFailed, match="kv_blocks"):
        load_program(artifact, threads=1, kv_blocks=kv_blocks)


def test_no_threads_are_refused(artifact: Path) -> None:
    with pytest.raises(LoadFailed, match="0 threads"):
        load_program(artifact, threads=0, kv_blocks=5)


def test_threads_may_be_pinned(artifact: Path) -> None:
    with load_program(artifact, threads=2, kv_blocks=5, pin_threads=True) as program:
        assert np.allclose(program.step(GOOD), expected(FIRST[:1], FIRST[:2]), rtol=1e-6, atol=1e-5)


def test_the_best_level_is_loaded(tmp_path: Path, toolchain: Toolchain) -> None:
    best = best_level(host_features())
    write_tiny_artifact(tmp_path / "both", toolchain, tuple({PORTABLE, best}))
    with load_program(tmp_path / "both", threads=1, kv_blocks=5) as program:
        assert program.level == best.name
        assert np.allclose(program.step(GOOD), expected(FIRST[:1], FIRST[:2]), rtol=1e-6, atol=1e-5)


def test_a_level_can_be_asked_for(tmp_path: Path, toolchain: Toolchain) -> None:
    write_tiny_artifact(tmp_path / "both", toolchain, tuple({PORTABLE, best_level(host_features())}))
    with load_program(tmp_path / "both", threads=1, kv_blocks=5, level="portable") as program:
        assert program.level == "portable"


def test_a_level_that_is_not_there_is_refused(artifact: Path) -> None:
    with pytest.raises(UnsupportedCpu):
        load_program(artifact, kv_blocks=5, level="x86-64-v3")


@pytest.mark.pitfall("C28")
def test_kernels_built_for_more_than_they_say_are_refused(tmp_path: Path, toolchain: Toolchain) -> None:
    claimed = replace(X86_64_V4_AMX, name="portable")
    write_tiny_artifact(tmp_path / "liar", toolchain, (claimed,))
    features = host_features()
    needs_more = bool(claimed.required & ~features)
    assert opens(tmp_path / "liar") is not needs_more


def opens(artifact_dir: Path) -> bool:
    try:
        load_program(artifact_dir, threads=1, kv_blocks=5).close()
    except UnsupportedCpu:
        return False
    return True


@pytest.mark.pitfall("C28")
def test_a_program_for_another_target_is_refused(tmp_path: Path, artifact: Path) -> None:
    manifest = decode_manifest((artifact / "manifest.json").read_bytes())
    (tmp_path / "manifest.json").write_bytes(encode_manifest(replace(manifest, target="cuda-sm90")))
    with pytest.raises(ArtifactError, match="cuda-sm90"):
        load_program(tmp_path, kv_blocks=5)


def test_a_kernel_that_is_not_there_is_named(tmp_path: Path, artifact: Path) -> None:
    manifest = decode_manifest((artifact / "manifest.json").read_bytes())
    program = manifest.programs[0]
    bucket = program.buckets[1]
    renamed = replace(bucket.launches[0], kernel="k_elsewhere")
    buckets = (program.buckets[0], replace(bucket, launches=(renamed, *bucket.launches[1:])))
    changed = replace(manifest, programs=(replace(program, buckets=buckets),))
    for name in ("kernels", "weights"):
        (tmp_path / name).mkdir()
        for file in (artifact / name).iterdir():
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
    (tmp_path / "manifest.json").write_bytes(encode_manifest(changed))
    with pytest.raises(LoadFailed, match="k_elsewhere"):
        load_program(tmp_path, kv_blocks=5)


@pytest.mark.pitfall("C27")
def test_the_runtime_imports_nothing_that_compiles() -> None:
    code = (
        "import sys, compiler.runtime, compiler.artifact, compiler.runtime.sample\n"
        "heavy = {'torch', 'egglog', 'triton', 'transformers', 'tokenizers', 'pydantic', 'safetensors'}\n"
        "ours = {f'compiler.{x}' for x in ('egraph', 'search', 'codegen', 'frontend', 'zoo')}\n"
        "print(sorted((heavy | ours) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"


def test_an_idle_program_uses_no_processor_time(program: Program) -> None:
    program.step(GOOD)
    time.sleep(0.1)  # long enough to fall asleep
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.05
