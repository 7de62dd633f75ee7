"""What the search is worth, measured: beside the cost model alone and chance, by depth, and from its cache.

    python -m loadtest.bench.search [CHECKPOINT] [--budget full] [--only worth,chance,depth,cache]

`worth`: steps of a program searched with the budget beside one of budget `none`, in turns. `chance`: as many
candidates of the same definitions, taken blindly, and the two winners raced. `depth`: seconds to search 30
layers over those for 2. `cache`: seconds to compile again what was compiled before. One JSON line each.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer

from candela.demo import obtain_checkpoint
from compiler.buckets import step_buckets
from compiler.checkpoint import ModelConfig, inspect_directory
from compiler.codegen.toolchain import Toolchain, find_compiler
from compiler.fingerprint import environment
from compiler.ir.graph import Graph
from compiler.lower.precision import narrow_operands
from compiler.measure.bench import Bench
from compiler.pipeline import CompileOptions, compile_checkpoint
from compiler.runtime import Program, StepBatch, load_program
from compiler.runtime.cpu import Feature, best_level, host_features
from compiler.search.arrange import arrange
from compiler.search.cache import SearchCache
from compiler.search.cuts import starting_cuts
from compiler.search.program import EFFORTS, Setting, search
from compiler.search.tuner import Tuner
from compiler.zoo import StepLimits
from compiler.zoo.llama import build_llama

CONTEXT = 2048
SIZES = (1, 8, 128)
_REPEATS = 15
_HEAVIEST = 6


@dataclass(frozen=True)
class Place:
    """What is measured, with which effort, and where things are kept."""

    checkpoint: Path
    config: ModelConfig
    budget: str
    work: Path
    objects: Path

    def graph(self, layers: int | None = None) -> Graph:
        config = self.config if layers is None else replace(self.config, num_hidden_layers=layers)
        return build_llama(
            config, dtype="bf16", max_context=CONTEXT, block_size=16, limits=StepLimits(512, 32)
        )

    @contextmanager
    def setting(self, graph: Graph, cache: str | None = None) -> Iterator[Setting]:
        """A search that knows nothing but built objects; with `cache`, what others of that name found."""
        level, threads = best_level(host_features()), os.cpu_count() or 1
        toolchain = Toolchain(find_compiler(None), self.objects)
        has_tiles = Feature.AMX_BF16 in level.required
        told = environment(level, toolchain.compiler.version, threads, has_tiles=has_tiles)
        with tempfile.TemporaryDirectory(dir=self.work) as scratch:
            yield Setting(
                dims=tuple(s.name for s in graph.symbols),
                buckets=step_buckets(graph),
                threads=threads,
                effort=EFFORTS[self.budget],
                seed=0,
                work_dir=Path(scratch),
                build=lambda source: toolchain.shared_object(source, level),
                should_stop=lambda: False,
                is_busy=lambda: False,
                has_tiles=has_tiles,
                environment=told,
                cache=SearchCache(self.work / cache, told) if cache is not None else None,
            )

    def compiled(self, name: str, budget: str, cache: Path) -> Path:
        options = CompileOptions(budget=budget, max_context=CONTEXT, cache_dir=cache)
        compile_checkpoint(self.checkpoint, self.work / name, options)
        return self.work / name


def worth(place: Place) -> dict[str, Any]:
    """Times of the budget's program over those of `none`, by tokens of a step; below 1 is faster."""
    paths = [place.compiled(budget, budget, place.objects) for budget in (place.budget, "none")]
    programs = [load_program(path, kv_blocks=64) for path in paths]
    ratios = {}
    for tokens in SIZES:
        samples: list[list[float]] = [[], []]
        for turn in range(_REPEATS):
            for which in (0, 1) if turn % 2 else (1, 0):
                samples[which].append(_step_s(programs[which], tokens))
        ratios[str(tokens)] = round(median(a / b for a, b in zip(*samples, strict=True)), 4)
    for program in programs:
        program.close()
    return {
        "what": "worth",
        "budget": place.budget,
        "time_over_none": ratios,
        "speedup": _mean_speedup(ratios),
    }


def _mean_speedup(ratios: dict[str, float]) -> float:
    return round(exp(-sum(map(log, ratios.values())) / len(ratios)), 4)


def _step_s(program: Program, tokens: int) -> float:
    """Seconds of a step of one sequence's first `tokens`; of one token, after a context of 127."""
    start = 127 if tokens == 1 else 0
    positions = np.arange(start, start + tokens, dtype=np.int32)
    batch = StepBatch(
        token_ids=positions % program.vocab_size,
        positions=positions,
        sequence_index=np.zeros(tokens, np.int32),
        slots=positions + 16,
        block_tables=np.arange(1, 9, dtype=np.int32)[None],
        logit_rows=np.array([tokens - 1], np.int32),
    )
    launches = 4 if tokens == 1 else 2
    began = time.perf_counter()
    for _ in range(launches):
        program.step(batch)
    return (time.perf_counter() - began) / launches


def chance(place: Place) -> dict[str, Any]:
    """For the dearest definitions: the hunt's winner over the winner of as many random trials."""
    graph = place.graph(layers=2)
    with place.setting(graph) as setting, Bench(setting.work_dir, setting.threads) as bench:
        arranged = arrange(narrow_operands(graph) if setting.has_tiles else graph, starting_cuts(graph))
        tuner = Tuner(setting, bench)
        tuner.tune(arranged, lambda f, m: None)
        tuner.evolve(arranged, lambda f, m: None)
        rows = [r for key in tuner.dearest()[:_HEAVIEST] for r in _against_chance(tuner, key)]
    ratios = {f"{key} {bucket}": value for key, bucket, value in rows}
    wins = sum(v < 0.99 for v in ratios.values())
    losses = sum(v > 1.01 for v in ratios.values())
    return {
        "what": "chance",
        "budget": place.budget,
        "contests": len(ratios),
        "won": wins,
        "lost": losses,
        "speedup": _mean_speedup(ratios),
    }


def _against_chance(tuner: Tuner, key: str) -> Iterator[tuple[str, str, float]]:
    """Races the two winners in each bucket, longer than either was raced before."""
    found = tuner.hunt(key)
    blind = tuner.at_random(key, len(found.entrants))
    if not blind.passed:
        return
    ours, theirs = found.chosen(), blind.chosen()
    final = tuner.raced(key, list({c.name: c for w in (ours, theirs) for c in w.values()}.values()))
    final.settle(8)
    for bucket in final.measured:
        yield key, bucket, final.seconds(ours[bucket], bucket) / final.seconds(theirs[bucket], bucket)


def depth(place: Place) -> dict[str, Any]:
    """Seconds of a search of 30 layers over one of 2, neither knowing what the other found."""
    took = {}
    for layers in (2, 30):
        graph = place.graph(layers)
        with place.setting(graph, cache=f"depth{layers}") as setting:
            began = time.perf_counter()
            search(graph, setting, lambda f, m: None)
            took[layers] = time.perf_counter() - began
    return {
        "what": "depth",
        "budget": place.budget,
        "seconds": {str(n): round(s, 1) for n, s in took.items()},
        "ratio": round(took[30] / took[2], 3),
    }


def cache(place: Place) -> dict[str, Any]:
    """Seconds to compile what the same cache has seen, as a whole and until the search was done."""
    options = CompileOptions(budget=place.budget, max_context=CONTEXT, cache_dir=place.objects)
    compile_checkpoint(place.checkpoint, place.work / "once", options)
    began, searched = time.perf_counter(), [0.0]

    def on_progress(progress: Any) -> None:
        if progress.stage == "search":
            searched[0] = time.perf_counter() - began

    compile_checkpoint(place.checkpoint, place.work / "again", options, on_progress)
    whole = time.perf_counter() - began
    return {
        "what": "cache",
        "budget": place.budget,
        "search_s": round(searched[0], 2),
        "whole_s": round(whole, 2),
    }


PARTS = {"worth": worth, "chance": chance, "depth": depth, "cache": cache}


def main(
    checkpoint: Annotated[Path | None, typer.Argument(help="Default: the demo's model.")] = None,
    budget: Annotated[str, typer.Option(help="quick or full.")] = "full",
    only: Annotated[str, typer.Option(help="Which parts, comma-separated.")] = ",".join(PARTS),
    cache_dir: Annotated[Path, typer.Option("--cache", help="Where downloads and objects are kept.")] = Path(
        ".cache"
    ),
) -> None:
    """Print one JSON line for each part."""
    path = checkpoint or obtain_checkpoint(cache_dir / "demo")
    config = inspect_directory(path).config
    with tempfile.TemporaryDirectory(prefix="candela-bench-") as work:
        place = Place(path, config, budget, Path(work), (cache_dir / "search-bench").absolute())
        for name in only.split(","):
            print(json.dumps(PARTS[name](place)), flush=True)


if __name__ == "__main__":
    typer.run(main)
