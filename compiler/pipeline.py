"""The table of contents: a checkpoint becomes an artifact.

inspect -> graph -> search (define, saturate, form, print, build, gate, measure)
        -> assemble -> build -> pack -> write -> prove
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.artifact.manifest import DimRange, KvGeometry, ModelFacts
from compiler.artifact.writer import ArtifactWriter
from compiler.assemble import Assembled, arena_report, assemble
from compiler.buckets import step_buckets
from compiler.checkpoint import ModelConfig, inspect_directory
from compiler.codegen.toolchain import Toolchain
from compiler.errors import CompilerError
from compiler.ir.dtype import DType
from compiler.ir.graph import Graph, verify
from compiler.lower.weight_views import StoredWeights, store_views
from compiler.measure.journal import Journal
from compiler.options import (
    BadOption,
    CompileOptions,
    Workshop,
    effort_of,
    level_of,
    setting_of,
    toolchain_of,
)
from compiler.prove import prove
from compiler.runtime.cpu import Level
from compiler.search.program import SearchedProgram, Stopped, kernels_source, search
from compiler.zoo import StepLimits, build_step, step_tables
from compiler.zoo.weights import Weights, open_weights

VERSION = "1"
"""Part of every cache key: raised when the same input may give another artifact."""

BLOCK_SIZE = 16
_DTYPES = {"f32": DType.F32, "bf16": DType.BF16}
__all__ = ["BadOption", "CompileOptions", "CompileReport", "Progress", "Stopped", "compile_checkpoint"]


@dataclass(frozen=True, slots=True)
class Progress:
    """`fraction` is of the whole compile."""

    stage: str
    fraction: float
    message: str = ""


@dataclass(frozen=True, slots=True)
class CompileReport:
    """What a compile did; the artifact holds it as report.json. `model` are the facts that serving needs.

    `seconds` are those of the search, by its journal, and `first_valid_s` those to its first valid program.
    """

    seconds: float
    first_valid_s: float
    target: str
    level: str
    compiler: str
    definitions: int
    distinct: int
    candidates: int
    refused: int
    memory: Mapping[str, object]
    model: Mapping[str, object]
    kernels: tuple[Mapping[str, object], ...] = field(default_factory=tuple)
    moves: tuple[Mapping[str, object], ...] = field(default_factory=tuple)


def compile_checkpoint(
    checkpoint: Path,
    out_dir: Path,
    options: CompileOptions,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    should_stop: Callable[[], bool] = lambda: False,
    is_busy: Callable[[], bool] = lambda: False,
) -> CompileReport:
    """Compile the checkpoint in a folder (or a GGUF file) into the artifact folder `out_dir`.

    Raises:
        CheckpointError: the checkpoint does not hold what its config promises.
        BadOption, UnsupportedModel: it cannot be compiled like this.
        Stopped: `should_stop` said so; nothing is left behind.
        CompilerError: the toolchain failed, no candidate passed the gate, or the artifact disagrees with its
            definitions.
    """
    start = time.perf_counter()
    effort = effort_of(options.budget)
    on_progress(Progress("inspect", 0.0, "reading headers"))
    info = inspect_directory(checkpoint)
    context = options.max_context or info.config.max_position_embeddings
    lying = store_views(_graph(info.config, options, context))
    graph = lying.graph
    level = level_of(options)
    toolchain = toolchain_of(options)

    def report(fraction: float, message: str) -> None:
        on_progress(Progress("search", 0.02 + 0.78 * fraction, message))

    with tempfile.TemporaryDirectory(prefix="candela-search-") as work, Journal(options.journal) as journal:
        workshop = Workshop(Path(work), toolchain, level, should_stop, is_busy, journal)
        setting = setting_of(graph, step_buckets(graph), options, effort, workshop)
        searched = search(graph, setting, report)
    assembled = assemble(searched, setting.buckets, level.name, toolchain.compiler.version)
    on_progress(Progress("build", 0.82, f"{len(assembled.candidates)} kernels"))
    source = kernels_source(assembled.candidates, setting.dims)
    kernels = setting.build(source)
    facts = _facts(info.config, options, context)
    made = _report(options, level, toolchain, searched, assembled, facts)
    with open_weights(info) as opened:
        weights = _Weights(opened, lying, step_tables(info.config, context))
        with ArtifactWriter(out_dir) as writer:
            for number, use in enumerate(assembled.weights):
                if should_stop():
                    raise Stopped("the compile was stopped")
                writer.add_weight(use.name, weights.read(use.weight), use.layout)
                fraction = 0.84 + 0.1 * number / len(assembled.weights)
                on_progress(Progress("pack", fraction, use.weight[:80]))
            writer.add_kernels(level.name, kernels)
            writer.add_report(asdict(made))
            dims = _dims(graph, setting.dims)
            writer.finish(target=options.target, dims=dims, model=facts, programs=[assembled.program])
        on_progress(Progress("prove", 0.95, "comparing the artifact with its definitions"))
        _prove_or_remove(out_dir, searched, weights, options.dtype)
    on_progress(Progress("done", 1.0, f"{time.perf_counter() - start:.0f} s"))
    return made


def _prove_or_remove(out_dir: Path, searched: SearchedProgram, weights: _Weights, dtype: str) -> None:
    try:
        prove(out_dir, searched, lambda buffer: weights.read(buffer.removeprefix("w:")), dtype)
    except CompilerError:
        shutil.rmtree(out_dir)
        raise


def _graph(config: ModelConfig, options: CompileOptions, context: int) -> Graph:
    if options.dtype not in _DTYPES:
        raise BadOption(f"dtype {options.dtype!r} is none of {', '.join(_DTYPES)}")
    if options.target != "cpu":
        raise BadOption(
            f"target {options.target!r} is not built by this function; see `candela compile --help`"
        )
    limits = StepLimits(options.max_batched_tokens, options.max_sequences)
    graph = build_step(config, dtype=options.dtype, max_context=context, block_size=BLOCK_SIZE, limits=limits)
    verify(graph)
    return graph


def _dims(graph: Graph, order: tuple[str, ...]) -> list[DimRange]:
    found = {s.name: s for s in graph.symbols}
    return [DimRange(n, found[n].low, found[n].high) for n in order]


def _facts(config: ModelConfig, options: CompileOptions, context: int) -> ModelFacts:
    kv = KvGeometry(
        config.num_hidden_layers, config.num_key_value_heads, config.head_dim, _DTYPES[options.dtype]
    )
    return ModelFacts(
        config.vocab_size, context, BLOCK_SIZE, options.max_batched_tokens, options.max_sequences, kv
    )


@dataclass(frozen=True, slots=True)
class _Weights:
    """The graph's weights in their element types and as they lie: the checkpoint's tensors, and the tables
    that are computed.
    """

    checkpoint: Weights
    lying: StoredWeights
    tables: Mapping[str, npt.NDArray[np.float32]]

    def read(self, name: str) -> npt.NDArray[Any]:
        if name in self.tables:
            return np.asarray(self.tables[name], dtype=np.float32)
        is_bf16 = self.lying.graph.weights[name].dtype is DType.BF16
        return self.lying.stored(name, self.checkpoint.bf16(name) if is_bf16 else self.checkpoint.f32(name))


def _report(
    options: CompileOptions,
    level: Level,
    toolchain: Toolchain,
    searched: SearchedProgram,
    assembled: Assembled,
    facts: ModelFacts,
) -> CompileReport:
    records = [r for t in searched.tuned.values() for r in t.records]
    return CompileReport(
        seconds=round(searched.seconds, 3),
        first_valid_s=round(searched.first_s, 3),
        target=options.target,
        level=level.name,
        compiler=toolchain.compiler.version,
        definitions=len(searched.instances),
        distinct=len(searched.tuned),
        candidates=len(records),
        refused=sum(bool(r.refusal) for r in records),
        memory=arena_report(assembled.arena),
        model=asdict(facts),
        kernels=tuple(asdict(r) for r in records),
        moves=tuple(asdict(m) for m in searched.moves),
    )
