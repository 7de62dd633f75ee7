"""What a compile is asked for, and the setting of a search that follows from it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from compiler.codegen.toolchain import Toolchain, find_compiler
from compiler.codegen.toolchain_errors import CompileCancelled
from compiler.errors import CompilerError
from compiler.fingerprint import environment
from compiler.ir.graph import Graph
from compiler.measure.journal import Journal
from compiler.runtime.cpu import LEVELS, Feature, Level, best_level, host_features, level_named
from compiler.search.cache import SearchCache
from compiler.search.candidates import Bucket
from compiler.search.kept import Kept
from compiler.search.program import EFFORTS, Effort, Setting, Stopped, effort_for


class BadOption(CompilerError):
    """A compile option that means nothing."""

    code = "invalid_option"


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What to compile for. `budget` is "none", "quick", "full", or seconds; `level` None takes this CPU's
    best, and may name several, comma-separated, for one artifact that runs on more CPUs. `compiler` is a C++
    compiler's command; None looks for one. With a `journal` a compile that was broken off goes on where it
    ended, and one that was complete gives the same bytes.
    """

    dtype: str = "bf16"
    budget: str | float = "quick"
    target: str = "cpu"
    max_context: int | None = None
    seed: int = 0
    max_batched_tokens: int = 512
    max_sequences: int = 32
    threads: int | None = None
    level: str | None = None
    cache_dir: Path | None = None
    compiler: str | None = None
    journal: Path | None = None


@dataclass(frozen=True, slots=True)
class Workshop:
    """Where candidates are built and run, and who may stop it or keep it waiting."""

    folder: Path
    toolchain: Toolchain
    level: Level
    should_stop: Callable[[], bool] = lambda: False
    is_busy: Callable[[], bool] = lambda: False
    journal: Journal = field(default_factory=lambda: Journal(None))

    def build(self, source: str) -> Path:
        """The shared object of a translation unit.

        Raises:
            Stopped: `should_stop` said so.
            CompilerError: the toolchain failed.
        """
        try:
            return self.toolchain.shared_object(source, self.level, should_stop=self.should_stop)
        except CompileCancelled as error:
            raise Stopped("the compile was stopped") from error


def levels_of(options: CompileOptions) -> tuple[Level, ...]:
    """The levels to build for, least demanding first. They must run here: candidates are gated by running.

    Raises:
        BadOption: there is no such level, or this CPU lacks it.
    """
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


def has_tiles(level: Level, options: CompileOptions) -> bool:
    """Whether the level multiplies bf16 on matrix tiles: what meets a bf16 weight is rounded to bf16 then."""
    return Feature.AMX_BF16 in level.required and options.dtype == "bf16"


def effort_of(budget: str | float) -> Effort:
    """What a budget buys.

    Raises:
        BadOption: it is no budget.
    """
    effort = effort_for(budget)
    if effort is None:
        raise BadOption(f"budget {budget!r} is none of {', '.join(EFFORTS)}, nor seconds")
    return effort


def toolchain_of(options: CompileOptions) -> Toolchain:
    """The compiler and its cache.

    Raises:
        CompilerError: there is no compiler.
    """
    return Toolchain(find_compiler(options.compiler), _cache_dir(options))


def setting_of(
    graph: Graph, buckets: tuple[Bucket, ...], options: CompileOptions, effort: Effort, workshop: Workshop
) -> Setting:
    """What the search of `graph` runs in."""
    threads, level = options.threads or os.cpu_count() or 1, workshop.level
    on_tiles = has_tiles(level, options)
    told = environment(level, workshop.toolchain.compiler.version, threads, has_tiles=on_tiles)
    return Setting(
        dims=tuple(s.name for s in graph.symbols),
        buckets=buckets,
        threads=threads,
        effort=effort,
        seed=options.seed,
        work_dir=workshop.folder,
        build=workshop.build,
        should_stop=workshop.should_stop,
        is_busy=workshop.is_busy,
        has_tiles=on_tiles,
        environment=told,
        journal=workshop.journal,
        cache=SearchCache(_cache_dir(options) / "search", told),
        kept=Kept(_cache_dir(options) / "refused"),
    )


def _cache_dir(options: CompileOptions) -> Path:
    return options.cache_dir or Path.home() / ".cache" / "candela"
