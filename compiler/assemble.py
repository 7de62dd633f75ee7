"""A searched program becomes an artifact's parts: buffers with offsets, launches by bucket, and which
weights lie how.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from compiler.artifact.layouts import WeightLayout
from compiler.artifact.manifest import Bucket as BucketPlan
from compiler.artifact.manifest import Buffer as ArtifactBuffer
from compiler.artifact.manifest import BufferKind, DimRange, KernelLaunch, LevelProgram
from compiler.ir.dim import bounds
from compiler.ir.dtype import itemsize
from compiler.ir.graph import Graph
from compiler.lower.definitions import Definition, output_roots
from compiler.lower.memory import Arena, Interval, plan_arena
from compiler.lower.stages import lifetimes
from compiler.lower.tiles import Param
from compiler.search.candidates import Bucket, Candidate
from compiler.search.program import SearchedProgram


@dataclass(frozen=True, slots=True)
class WeightUse:
    """A weight of the graph in one layout, under the name that launches use."""

    name: str
    weight: str
    layout: WeightLayout


@dataclass(frozen=True, slots=True)
class Assembled:
    """Everything of a level's program but its compiled kernels. `outputs` names the buffer of each output."""

    program: LevelProgram
    candidates: tuple[Candidate, ...]
    weights: tuple[WeightUse, ...]
    arena: Arena
    outputs: Mapping[str, str]


def assemble(searched: SearchedProgram, buckets: tuple[Bucket, ...], level: str, compiler: str) -> Assembled:
    """Arrange `searched` for one level. `compiler` says what will build the kernels."""
    names = _Names(searched)
    used: dict[str, Candidate] = {}
    weights: dict[str, WeightUse] = {}
    plans = []
    for bucket in buckets:
        launches = tuple(_launches(searched, bucket, names, used, weights))
        plans.append(BucketPlan(_ranges(searched.graph, bucket), launches))
    arena = plan_arena(tuple(_intervals(searched, names)))
    scratch = max((c.kernel.scratch_bytes() for c in used.values()), default=0)
    buffers = tuple(_buffers(searched, names, arena))
    program = LevelProgram(level, compiler, scratch + 64, buffers, tuple(plans))
    return Assembled(program, tuple(used.values()), tuple(weights.values()), arena, names.buffers)


def _ranges(graph: Graph, bucket: Bucket) -> tuple[DimRange, ...]:
    """Buckets are told apart by the tokens of a step; a graph without them has one."""
    has_tokens = any(s.name == "T" for s in graph.symbols)
    return (DimRange("T", bucket.low, bucket.high),) if has_tokens else ()


class _Names:
    """What launches call each buffer: inputs and outputs by their own names, values by their definition's."""

    def __init__(self, searched: SearchedProgram) -> None:
        graph = searched.graph
        definitions = [d for group in searched.plan for d in group]
        by_node = {d.node: d for d in definitions}
        self.aliases = {d.name: d.aliases for d in definitions if d.aliases is not None}
        self.outputs: dict[str, str] = {}
        self.buffers: dict[str, str] = {}
        self.caches = set(graph.aliases.values())
        for name, node in output_roots(graph).items():
            if name in graph.aliases:
                self.buffers[name] = graph.aliases[name]
            else:
                self.buffers[name] = self.outputs.setdefault(by_node[node].name, name)

    def of(self, buffer: str) -> str:
        buffer = self.aliases.get(buffer, buffer)
        if buffer.startswith("in:"):
            return buffer.removeprefix("in:")
        return self.outputs.get(buffer, buffer)


def _launches(
    searched: SearchedProgram,
    bucket: Bucket,
    names: _Names,
    used: dict[str, Candidate],
    weights: dict[str, WeightUse],
) -> Iterator[KernelLaunch]:
    for group in searched.plan:
        for number, definition in enumerate(group, start=1):
            candidate = searched.candidate(definition, bucket)
            used[candidate.name] = candidate
            arguments = searched.instances[definition.name].arguments
            args = tuple(_argument(p, arguments[p.buffer], names, weights) for p in candidate.kernel.params)
            yield KernelLaunch(candidate.name, args, stage_end=number == len(group))


def _argument(param: Param, buffer: str, names: _Names, weights: dict[str, WeightUse]) -> str:
    if not buffer.startswith("w:"):
        return names.of(buffer)
    name = f"{buffer}#{param.layout}" if param.is_packed else buffer
    weights[name] = WeightUse(name, buffer.removeprefix("w:"), param.layout)
    return name


def _intervals(searched: SearchedProgram, names: _Names) -> Iterator[Interval]:
    """Lifetimes of the values that live in the arena, at their largest."""
    live = lifetimes(searched.plan)
    for group in searched.plan:
        for d in group:
            if d.aliases is None and d.name not in names.outputs:
                first, last = live[d.name]
                yield Interval(d.name, _most_bytes(d), first, last)


def _most_bytes(definition: Definition) -> int:
    total = itemsize(definition.dtype)
    for size in definition.shape:
        total *= bounds(size)[1]
    return total


def _buffers(searched: SearchedProgram, names: _Names, arena: Arena) -> Iterator[ArtifactBuffer]:
    for name, node in searched.graph.inputs.items():
        kind = BufferKind.CACHE if name in names.caches else BufferKind.INPUT
        yield ArtifactBuffer(name, kind, node.dtype, tuple(map(str, node.shape)))
    for group in searched.plan:
        for d in group:
            shape = tuple(map(str, d.shape))
            if d.name in names.outputs:
                yield ArtifactBuffer(names.outputs[d.name], BufferKind.OUTPUT, d.dtype, shape)
            elif d.aliases is None:
                yield ArtifactBuffer(d.name, BufferKind.ARENA, d.dtype, shape, arena.offsets[d.name])


def arena_report(arena: Arena) -> Mapping[str, object]:
    """Figures of the memory plan, beside the lower bound that no plan can beat."""
    return {"arena_bytes": arena.size_bytes, "peak_live_bytes": arena.peak_live_bytes}
