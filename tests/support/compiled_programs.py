"""The programs of the library as kernels of a level: which candidates are worth building, built once each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.codegen.toolchain import Toolchain
from compiler.ir import Graph
from compiler.lower.canonical import Canonical
from compiler.lower.precision import narrow_operands
from compiler.lower.terms import Kind, topological
from compiler.search.candidates import Bucket, Candidate, candidates
from compiler.search.cuts import starting_cuts
from tests.support.chained import instances
from tests.support.compiled_kernels import CompiledKernels, Place
from tests.support.programs import graph_of

_SIZES: Mapping[str, int] = {"T": 16, "S": 64, "B": 4, "M": 8, "NB": 33}
_BUCKETS = (Bucket("all", 1, 256, _SIZES),)
_LIKE_OTHERS = {
    "attention",
    "causal_attention",
    "sliding_window_attention",
    "window_of_two_masks",
    "soft_capped_attention",
    "alibi_attention",
    "padded_attention",
    "paged_attention",
}
"""Programs whose kernels are those of `grouped_attention` or `paged_attention_bf16` but for a mask or a
dtype: each form is built under one schedule only.
"""


@dataclass(frozen=True, slots=True)
class Built:
    """A definition with its candidates, built."""

    definition: Canonical
    candidates: tuple[Candidate, ...]
    kernels: CompiledKernels

    def by_recipe(self) -> list[list[Candidate]]:
        """Candidates that must agree to the bit, of the recipes that have several."""
        recipes = dict.fromkeys(c.recipe for c in self.candidates)
        return [[c for c in self.candidates if c.recipe == recipe] for recipe in recipes]


class Library:
    """Builds each program once for a place, when a test first asks for it."""

    def __init__(self, toolchain: Toolchain, place: Place, *, is_thorough: bool) -> None:
        self._toolchain, self._place, self._is_thorough = toolchain, place, is_thorough
        self._built: dict[str, tuple[Built, ...]] = {}

    def program(self, name: str) -> tuple[Built, ...]:
        """A program of the library: its definitions in order."""
        is_thorough = self._is_thorough and name not in _LIKE_OTHERS
        return self._once(name, definitions_of(graph_of(name)), is_thorough=is_thorough)

    def narrowed(self, name: str) -> tuple[Built, ...]:
        """A program whose bf16 products run on matrix tiles."""
        return self._once(f"narrowed {name}", definitions_narrowed(name), has_tiles=True)

    def graph(self, name: str, graph: Graph) -> tuple[Built, ...]:
        """Any other graph, under a name of its own."""
        return self._once(name, definitions_of(graph))

    def _once(
        self, name: str, definitions: list[Canonical], *, is_thorough: bool = True, has_tiles: bool = False
    ) -> tuple[Built, ...]:
        if name not in self._built:
            self._built[name] = tuple(self._build(d, is_thorough, has_tiles) for d in definitions)
        return self._built[name]

    def _build(self, definition: Canonical, is_thorough: bool, has_tiles: bool) -> Built:
        found = candidates(definition, _BUCKETS, 2, 1, has_tiles=has_tiles)
        kept = found if is_thorough else _one_a_form(found)
        return Built(definition, kept, CompiledKernels(self._toolchain, self._place, kept))


def definitions_of(graph: Graph) -> list[Canonical]:
    return [i.canonical for i in instances(graph)]


def definitions_narrowed(name: str) -> list[Canonical]:
    """A program's definitions when operands of bf16 weights are rounded, and kept so."""
    graph = narrow_operands(graph_of(name))
    return [i.canonical for i in instances(graph, starting_cuts(graph))]


def _one_a_form(found: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """The candidate of each form that is predicted fastest, and the last of the first form."""
    best: dict[str, Candidate] = {}
    for c in found:
        held = best.get(c.term.key)
        if held is None or c.predicted["all"] < held.predicted["all"]:
            best[c.term.key] = c
    last = [c for c in found if c.term is found[0].term][-1]
    kept = {c.name for c in (*best.values(), last)}
    return tuple(c for c in found if c.name in kept)


def may_overflow(candidate: Candidate) -> bool:
    """Whether a correction is the reciprocal of a shrinking exponential: only the gate can refuse it."""
    independents = [x.args[1] for x in topological([candidate.term]) if x.kind is Kind.ONLINE]
    return any(x.kind is Kind.RECIP for i in independents for x in topological([i]))
