"""The table of contents: a checkpoint becomes an artifact.

inspect -> graph -> search (define, saturate, form, print, build, gate, measure)
        -> assemble -> build -> pack -> write -> prove
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from compiler.artifact.manifest import DimRange, Manifest, ModelFacts
from compiler.artifact.receipt import LevelReceipt, Receipt, array_digest, file_digest, text_digest
from compiler.artifact.writer import ArtifactWriter
from compiler.assemble import Assembled, arena_report, assemble
from compiler.buckets import step_buckets
from compiler.checkpoint import inspect_directory
from compiler.codegen.toolchain import Toolchain, find_compiler
from compiler.codegen.toolchain_errors import CompileCancelled
from compiler.errors import CompilerError
from compiler.ir.graph import Graph
from compiler.ir.text import print_graph
from compiler.model import CheckpointWeights, build_graph, has_tiles, model_facts, opened_weights
from compiler.options import VERSION, BadOption, CompileOptions, CompileReport, Progress
from compiler.prove import TOLERANCE, prove
from compiler.runtime.cpu import LEVELS, Level, best_level, host_features, level_named
from compiler.search.program import EFFORTS, Effort, SearchedProgram, Setting, Stopped, kernels_source, search

__all__ = ["BadOption", "CompileOptions", "CompileReport", "Progress", "Stopped", "compile_checkpoint"]


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
    effort = _effort(options.budget)
    on_progress(Progress("inspect", 0.0, "reading headers"))
    info = inspect_directory(checkpoint)
    context = options.max_context or info.config.max_position_embeddings
    graph = build_graph(info.config, options)
    levels = _levels(options)
    toolchain = Toolchain(find_compiler(options.compiler), _cache_dir(options))
    built = []
    for number, level in enumerate(levels):
        share = _Share(on_progress, number, len(levels), level.name)
        built.append(_build_level(graph, options, effort, toolchain, level, share, should_stop, is_busy))
    facts = model_facts(info.config, options)
    made = _report(start, options, toolchain, built, facts)
    uses = {use.name: use for b in built for use in b.assembled.weights}
    with opened_weights(info, graph, options) as weights:
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


def _build_level(
    graph: Graph,
    options: CompileOptions,
    effort: Effort,
    toolchain: Toolchain,
    level: Level,
    share: _Share,
    should_stop: Callable[[], bool],
    is_busy: Callable[[], bool],
) -> _Built:
    with tempfile.TemporaryDirectory(prefix="candela-search-") as work:
        setting = _setting(graph, options, effort, Path(work), toolchain, level, should_stop, is_busy)
        searched = search(graph, setting, lambda f, m: share(0.97 * f, m))
    assembled = assemble(searched, setting.buckets, level.name, toolchain.compiler.version)
    share(0.97, f"{len(assembled.candidates)} kernels", "build")
    source = {c.name: kernels_source([c], setting.dims) for c in assembled.candidates}
    kernels = setting.build(kernels_source(assembled.candidates, setting.dims))
    return _Built(level, setting, searched, assembled, kernels, source)


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


def _levels(options: CompileOptions) -> tuple[Level, ...]:
    """The levels to build for, least demanding first. They must run here: candidates are gated by running."""
    features = host_features()
    if options.level is None:
        return (best_level(features),)
    try:
        asked = {level_named(name.strip()) for name in options.level.split(",")}
    except CompilerError as error:
        raise BadOption(str(error)) from error
    for level in asked:
        if level.required & ~features:
            lacking = (level.required & ~features).name
            raise BadOption(
                f"level {level.name} needs {lacking}, which this CPU lacks; compile on one that has it"
            )
    return tuple(level for level in LEVELS if level in asked)


def _effort(budget: str | float) -> Effort:
    if isinstance(budget, str) and budget in EFFORTS:
        return EFFORTS[budget]
    try:
        seconds = float(budget)
    except ValueError as error:
        raise BadOption(f"budget {budget!r} is none of {', '.join(EFFORTS)}, nor seconds") from error
    return EFFORTS["none"] if seconds < 10 else EFFORTS["quick"] if seconds < 180 else EFFORTS["full"]


def _setting(
    graph: Graph,
    options: CompileOptions,
    effort: Effort,
    work: Path,
    toolchain: Toolchain,
    level: Level,
    should_stop: Callable[[], bool],
    is_busy: Callable[[], bool],
) -> Setting:
    return Setting(
        dims=tuple(s.name for s in graph.symbols),
        buckets=step_buckets(graph),
        threads=options.threads or os.cpu_count() or 1,
        effort=effort,
        seed=options.seed,
        work_dir=work,
        build=lambda source: _build(toolchain, source, level, should_stop),
        should_stop=should_stop,
        is_busy=is_busy,
        has_tiles=has_tiles(level, options),
    )


def _build(toolchain: Toolchain, source: str, level: Level, should_stop: Callable[[], bool]) -> Path:
    try:
        return toolchain.shared_object(source, level, should_stop=should_stop)
    except CompileCancelled as error:
        raise Stopped("the compile was stopped") from error


def _cache_dir(options: CompileOptions) -> Path:
    return options.cache_dir or Path.home() / ".cache" / "candela"


def _dims(graph: Graph, order: tuple[str, ...]) -> list[DimRange]:
    found = {s.name: s for s in graph.symbols}
    return [DimRange(n, found[n].low, found[n].high) for n in order]


def _report(
    start: float, options: CompileOptions, toolchain: Toolchain, built: Sequence[_Built], facts: ModelFacts
) -> CompileReport:
    best = built[-1]
    searched = best.searched
    records = [r for b in built for t in b.searched.tuned.values() for r in t.records]
    return CompileReport(
        seconds=round(time.perf_counter() - start, 3),
        target=options.target,
        level=best.level.name,
        compiler=toolchain.compiler.version,
        definitions=len(searched.instances),
        distinct=len(searched.tuned),
        candidates=len(records),
        refused=sum(bool(r.refusal) for r in records),
        memory=arena_report(best.assembled.arena),
        model=asdict(facts),
        kernels=tuple(asdict(r) for r in records),
        moves=tuple(asdict(m) for b in built for m in b.searched.moves),
    )
