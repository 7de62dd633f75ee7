"""What the compile child does: inspect the checkpoint, write tokenizer files, compile, and try the result."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from batching.prompt.export import write_tokenizer_dir
from compiler.artifact import Artifact, open_artifact
from compiler.checkpoint import inspect_directory
from compiler.measure.journal import JournalUnusable
from compiler.pipeline import CompileOptions, compile_checkpoint
from compiler.pipeline import Progress as CompileProgress
from compiler.runtime import load_program
from compiler.runtime.batch import StepBatch
from worker.errors import ArtifactUnusable
from worker.protocol import CompileRequest, Done, Progress

log = logging.getLogger(__name__)

_COMPILE_FROM = 0.05
_COMPILE_TO = 0.95
_PROBE_TOKENS = 5


def build(
    request: CompileRequest,
    say: Callable[[Progress], None],
    should_stop: Callable[[], bool],
    is_busy: Callable[[], bool],
    cxx: str | None = None,
) -> Done:
    """Fill `out_dir`/artifact and `out_dir`/tokenizer. `cxx` is a C++ compiler's command; None looks for one.

    Raises:
        CheckpointError: what the checkpoint's bytes show, all of it.
        UploadRefused: its tokenizer or chat template cannot be used.
        CompilerError: it cannot be compiled.
        ArtifactUnusable: it was compiled and does not run.
    """
    checkpoint, out = Path(request.checkpoint_dir), Path(request.out_dir)
    say(Progress("validate", 0.0))
    info = inspect_directory(checkpoint)
    say(Progress("tokenizer", 0.02))
    write_tokenizer_dir(checkpoint, out / "tokenizer", info.gguf_metadata)

    def on_progress(progress: CompileProgress) -> None:
        fraction = _COMPILE_FROM + (_COMPILE_TO - _COMPILE_FROM) * progress.fraction
        say(Progress(progress.stage, fraction, progress.message))

    options = _options(request, cxx)
    try:
        compile_checkpoint(checkpoint, out / "artifact", options, on_progress, should_stop, is_busy)
    except JournalUnusable as error:  # an attempt that was given up may still hold it
        log.warning("compiling without a journal: %s", error)
        options = replace(options, journal=None)
        compile_checkpoint(checkpoint, out / "artifact", options, on_progress, should_stop, is_busy)
    say(Progress("verify", _COMPILE_TO))
    artifact = open_artifact(out / "artifact")
    artifact.verify()
    try_out(out / "artifact")
    return Done(serving_facts(artifact))


def serving_facts(artifact: Artifact) -> dict[str, object]:
    """What scheduler and gateway need to know of a build; the keys are those of `Build.info`."""
    model = artifact.manifest.model
    return {
        "target": artifact.manifest.target,
        "levels": [program.level for program in artifact.manifest.programs],
        "vocab_size": model.vocab_size,
        "max_context": model.max_context,
        "block_size": model.block_size,
        "max_batched_tokens": model.max_batched_tokens,
        "max_sequences": model.max_sequences,
        "kv_bytes_per_block": model.kv.bytes_per_token() * model.block_size,
        "weights_bytes": sum(entry.size for entry in artifact.manifest.files.values()),
    }


def try_out(artifact_dir: Path) -> None:
    """Load the artifact as a replica would and run one step.

    Raises:
        ArtifactUnusable: no logits, or not finite ones.
    """
    program = load_program(artifact_dir, kv_blocks=2)
    try:
        count = min(_PROBE_TOKENS, program.block_size, program.max_batched_tokens, program.vocab_size)
        logits = program.step(_probe(count, program.block_size))
    finally:
        program.close()
    if logits.shape != (1, program.vocab_size) or not np.isfinite(logits).all():
        raise ArtifactUnusable(f"a first step gives logits of shape {logits.shape}, not all of them finite")


def _probe(count: int, block_size: int) -> StepBatch:
    """The first `count` token ids as one sequence in block 1, logits of its last row."""
    rows = np.arange(count, dtype=np.int32)
    return StepBatch(
        token_ids=rows.copy(),
        positions=rows.copy(),
        sequence_index=np.zeros(count, np.int32),
        slots=rows + np.int32(block_size),
        block_tables=np.ones((1, 1), np.int32),
        logit_rows=np.array([count - 1], np.int32),
    )


def _options(request: CompileRequest, cxx: str | None) -> CompileOptions:
    settings = request.settings
    return CompileOptions(
        dtype=settings.dtype,
        budget=settings.budget,
        target=settings.target,
        max_context=settings.max_context,
        seed=settings.seed,
        cache_dir=Path(request.cache_dir),
        journal=Path(request.journal) if request.journal is not None else None,
        compiler=cxx,
        max_batched_tokens=settings.max_batched_tokens,
        max_sequences=settings.max_sequences,
    )
