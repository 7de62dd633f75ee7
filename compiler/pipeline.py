"""The table of contents: a checkpoint becomes an artifact.

inspect -> graph -> for each CPU level: search (define, saturate, form, print, build, gate, measure),
        assemble, build -> pack -> prove -> write
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from compiler.artifact.manifest import DimRange, Manifest, ModelFacts
from compiler.artifact.receipt import LevelReceipt, Receipt, array_digest, file_digest, text_digest
from compiler.artifact.writer import ArtifactWriter
from compiler.assemble import Assembled, arena_report, assemble
from compiler.buckets import step_buckets
from compiler.checkpoint import inspect_directory
from compiler.codegen.toolchain import Toolchain
from compiler.ir.graph import Graph
from compiler.ir.text import print_graph
from compiler.measure.journal import Journal
from compiler.model import CheckpointWeights, build_graph, model_facts, opened_weights
from compiler.options import (
    BadOption,
    CompileOptions,
    Workshop,
    effort_of,
    levels_of,
    setting_of,
    toolchain_of,
)
from compiler.prove import TOLERANCE, prove
from compiler.runtime.cpu import Level
from compiler.search.program import Effort, SearchedProgram, Setting, Stopped, kernels_source, search

VERSION = "1"
"""Part of every cache key: raised when the same input may give another artifact."""

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
    lying = build_graph(info.config, options)
    levels, toolchain = levels_of(options), toolchain_of(options)
    graph = lying.graph
    built = []
    with Journal(options.journal) as journal:
        for number, level in enumerate(levels):
            share = _Share(on_progress, number, len(levels), level.name)
            work = _Work(options, effort, toolchain, level, journal, should_stop, is_busy)
            built.append(work.build(graph, share))
    facts = model_facts(info.config, options)
    made = _report(options, toolchain, built, facts)
    uses = {use.name: use for b in built for use in b.assembled.weights}
    with opened_weights(info, lying, options) as weights:
        digests: dict[str, str] = {}
        with ArtifactWriter(out_dir) as writer:
            for number, use in enumerate(uses.values()):
                if should_stop():
                    raise Stopped("the compile was stopped")
                values = weights.read(use.weight)
                if use.weight not in digests:
                    digests[use.weight] = array_digest(values)
                writer.add_weight(use.name, values, use.layout)
                fraction = 0.84 + 0.1 * number / len(uses)
                on_progress(Progress("pack", fraction, use.weight[:80]))
            for b in built:
                writer.add_kernels(b.level.name, b.kernels)
            writer.add_report(asdict(made))

            def prove(root: Path, manifest: Manifest) -> Receipt:
                on_progress(Progress("prove", 0.95, "comparing the artifact with its definitions"))
                return _attest(root, options, context, graph, toolchain, built, weights, digests)

            writer.finish(
                target=options.target,
                dims=_dims(graph, built[0].setting.dims),
                model=facts,
                programs=[b.assembled.program for b in built],
                prove=prove,
            )
    on_progress(Progress("done", 1.0, f"{time.perf_counter() - start:.0f} s"))
    return made


@dataclass(frozen=True, slots=True)
class _Built:
    """One CPU level, searched, assembled and compiled."""

    level: Level
    setting: Setting
    searched: SearchedProgram
    assembled: Assembled
    kernels: Path
    source: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Share:
    """One level's part of the progress of all searches."""

    on_progress: Callable[[Progress], None]
    number: int
    count: int
    level: str

    def __call__(self, fraction: float, message: str, stage: str = "search") -> None:
        caption = message if self.count == 1 else f"{self.level}: {message}"
        self.on_progress(Progress(stage, 0.02 + 0.8 * (self.number + fraction) / self.count, caption))


@dataclass(frozen=True, slots=True)
class _Work:
    """What it takes to build one level."""

    options: CompileOptions
    effort: Effort
    toolchain: Toolchain
    level: Level
    journal: Journal
    should_stop: Callable[[], bool]
    is_busy: Callable[[], bool]

    def build(self, graph: Graph, share: _Share) -> _Built:
        with tempfile.TemporaryDirectory(prefix="candela-search-") as folder:
            shop = Workshop(
                Path(folder), self.toolchain, self.level, self.should_stop, self.is_busy, self.journal
            )
            setting = setting_of(graph, step_buckets(graph), self.options, self.effort, shop)
            searched = search(graph, setting, lambda f, m: share(0.97 * f, m))
        assembled = assemble(searched, setting.buckets, self.level.name, self.toolchain.compiler.version)
        share(0.97, f"{len(assembled.candidates)} kernels", "build")
        source = {c.name: kernels_source([c], setting.dims) for c in assembled.candidates}
        kernels = setting.build(kernels_source(assembled.candidates, setting.dims))
        return _Built(self.level, setting, searched, assembled, kernels, source)


def _attest(
    root: Path,
    options: CompileOptions,
    context: int,
    graph: Graph,
    toolchain: Toolchain,
    built: Sequence[_Built],
    weights: CheckpointWeights,
    digests: Mapping[str, str],
) -> Receipt:
    """Prove each level of the finished artifact, and say what went into it.

    Raises:
        ArtifactDisagrees: a level does not compute what its definitions say.
    """
    levels = {}
    for b in built:
        error = prove(root, b.searched.arrangement, weights.read_buffer, options.dtype, b.level.name)
        sources = {name: text_digest(source) for name, source in b.source.items()}
        levels[b.level.name] = LevelReceipt(
            file_digest(b.kernels), sources, f"{error:.3e}", f"{TOLERANCE[options.dtype]:.3e}"
        )
    return Receipt(
        compiler=VERSION,
        toolchain=toolchain.compiler.version,
        options=_attested(options, context),
        graph=text_digest(print_graph(graph)),
        weights=digests,
        levels=levels,
    )


def _attested(options: CompileOptions, context: int) -> Mapping[str, str]:
    """The options that decide what is computed and how hard was searched."""
    names = ("dtype", "budget", "target", "seed", "max_batched_tokens", "max_sequences")
    return {name: str(getattr(options, name)) for name in names} | {"max_context": str(context)}


def _dims(graph: Graph, order: tuple[str, ...]) -> list[DimRange]:
    found = {s.name: s for s in graph.symbols}
    return [DimRange(n, found[n].low, found[n].high) for n in order]


def _report(
    options: CompileOptions, toolchain: Toolchain, built: Sequence[_Built], facts: ModelFacts
) -> CompileReport:
    best = built[-1]
    records = [r for b in built for t in b.searched.tuned.values() for r in t.records]
    return CompileReport(
        seconds=round(best.searched.seconds, 3),
        first_valid_s=round(built[0].searched.first_s, 3),
        target=options.target,
        level=best.level.name,
        compiler=toolchain.compiler.version,
        definitions=len(best.searched.instances),
        distinct=len(best.searched.tuned),
        candidates=len(records),
        refused=sum(bool(r.refusal) for r in records),
        memory=arena_report(best.assembled.arena),
        model=asdict(facts),
        kernels=tuple(asdict(r) for r in records),
        moves=tuple(asdict(m) for b in built for m in b.searched.moves),
    )
