"""An artifact of four hand-written kernels, and what they should compute."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compiler.artifact import (
    Bucket,
    Buffer,
    BufferKind,
    DimRange,
    KernelLaunch,
    KvGeometry,
    LevelProgram,
    Manifest,
    ModelFacts,
    WeightLayout,
)
from compiler.artifact.writer import ArtifactWriter
from compiler.codegen.toolchain import Toolchain
from compiler.ir.dtype import DType, bf16_to_f32, round_to_bf16
from compiler.runtime import StepBatch
from compiler.runtime.cpu import PORTABLE, Level

SOURCE = (Path(__file__).parent / "tiny_program.cpp").read_text()
WIDTH, VOCABULARY, BLOCK, CONTEXT, MAX_TOKENS, MAX_SEQUENCES = 5, 70, 16, 64, 12, 3

DIMS = (
    DimRange("T", 1, MAX_TOKENS),
    DimRange("R", 0, MAX_TOKENS),
    DimRange("B", 1, MAX_SEQUENCES),
    DimRange("M", 1, CONTEXT // BLOCK),
    DimRange("NB", 1, 1000),
)
MODEL = ModelFacts(VOCABULARY, CONTEXT, BLOCK, MAX_TOKENS, MAX_SEQUENCES, KvGeometry(1, 1, 1, DType.F32))


@dataclass(frozen=True, slots=True)
class TinyWeights:
    table: np.ndarray
    head: np.ndarray

    @classmethod
    def random(cls, seed: int = 0) -> TinyWeights:
        rng = np.random.default_rng(seed)
        table = rng.standard_normal((VOCABULARY, WIDTH)).astype(np.float32)
        return cls(table, round_to_bf16(rng.standard_normal((VOCABULARY, WIDTH)).astype(np.float32)))

    def logits(self, tokens: list[int]) -> np.ndarray:
        """After a whole history of tokens."""
        own = bf16_to_f32(self.head) @ self.table[tokens[-1]]
        return own + np.float32(sum(t + 1 for t in tokens))


def tiny_program(level: str) -> LevelProgram:
    def i32(name: str, *shape: str) -> Buffer:
        return Buffer(name, BufferKind.INPUT, DType.I32, shape)

    buffers = (
        *(i32(name, "T") for name in ("tokens", "positions", "sequence", "slots")),
        i32("block_tables", "B", "M"),
        i32("logit_rows", "R"),
        Buffer("rows", BufferKind.ARENA, DType.F32, ("T", str(WIDTH)), 0),
        Buffer("history", BufferKind.ARENA, DType.F32, ("R",), 256),
        Buffer("cache", BufferKind.CACHE, DType.F32, ("NB", str(BLOCK))),
        Buffer("logits", BufferKind.OUTPUT, DType.F32, ("R", str(VOCABULARY))),
    )
    history_args = ("positions", "sequence", "block_tables", "logit_rows", "cache", "history")
    launches = (
        KernelLaunch("k_rows", ("tokens", "table", "rows"), False),
        KernelLaunch("k_store", ("tokens", "slots", "cache"), True),
        KernelLaunch("k_history", history_args, True),
        KernelLaunch("k_logits", ("rows", "head", "logit_rows", "history", "logits"), True),
    )
    buckets = (
        Bucket((DimRange("T", 1, 1),), launches),
        Bucket((DimRange("T", 2, MAX_TOKENS),), launches),
    )
    return LevelProgram(level, "a compiler", 64 * 4, buffers, buckets)


def write_tiny_artifact(
    destination: Path, toolchain: Toolchain, levels: tuple[Level, ...] = (PORTABLE,), seed: int = 0
) -> Manifest:
    weights = TinyWeights.random(seed)
    with ArtifactWriter(destination) as writer:
        writer.add_weight("table", weights.table)
        writer.add_weight("head", weights.head, WeightLayout.PACKED_BF16_64)
        for level in levels:
            writer.add_kernels(level.name, toolchain.shared_object(SOURCE, level))
        writer.add_report({"made_by": "hand"})
        return writer.finish(
            target="cpu", dims=DIMS, model=MODEL, programs=[tiny_program(level.name) for level in levels]
        )


def batch_of(
    rows: list[tuple[int, list[int], int]], tables: list[list[int]], wanted: list[int] | None = None
) -> StepBatch:
    """A batch of (sequence, its tokens, how many of them are new); `wanted` rows get logits, or all do."""
    where = [(s, p, tokens[p]) for s, tokens, new in rows for p in range(len(tokens) - new, len(tokens))]
    slots = [tables[s][p // BLOCK] * BLOCK + p % BLOCK for s, p, _ in where]

    def ints(values: list[int]) -> np.ndarray:
        return np.array(values, dtype=np.int32)

    return StepBatch(
        token_ids=ints([token for _, _, token in where]),
        positions=ints([p for _, p, _ in where]),
        sequence_index=ints([s for s, _, _ in where]),
        slots=ints(slots),
        block_tables=np.array(tables, dtype=np.int32),
        logit_rows=ints(list(range(len(where)) if wanted is None else wanted)),
    )
