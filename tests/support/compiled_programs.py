"""The programs of the library as kernels of a level: which candidates are worth building, built once each."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

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
Choice: TypeAlias = Callable[[tuple[Candidate, ...]], tuple[Candidate, ...]]
"""Which of a definition's candidates are built."""
_WHOLE = {"weighted_mean", "paged_attention_bf16", "softmax", "log_of_sum", "row_variance"}
"""Programs whose every form is built under every schedule; of others only the first is."""
_BRIEF = {
    "attention",
    "causal_attention",
    "sliding_window_attention",
    "window_of_two_masks",
    "soft_capped_attention",
    "alibi_attention",
    "padded_attention",
    "paged_attention",
    "quotient",
    "normalised",
    "gated_mlp",
}
"""Programs whose kernels differ from others' by little, or take long to build: one or two of each form."""


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
        choose = _every if name in _WHOLE else _all_of_the_first_form
        is_brief = not self._is_thorough or name in _BRIEF
        return self._once(name, definitions_of(graph_of(name)), choose=_one_a_form if is_brief else choose)

    def narrowed(self, name: str) -> tuple[Built, ...]:
        """A program whose bf16 products run on matrix tiles."""
        return self._once(
            f"narrowed {name}", definitions_narrowed(name), choose=_one_a_layout, has_tiles=True
        )

    def graph(self, name: str, graph: Graph) -> tuple[Built, ...]:
        """Any other graph, under a name of its own."""
        return self._once(name, definitions_of(graph), choose=_every)

    def _once(
        self, name: str, definitions: list[Canonical], *, choose: Choice, has_tiles: bool = False
    ) -> tuple[Built, ...]:
        if name not in self._built:
            self._built[name] = tuple(self._build(d, choose, has_tiles) for d in definitions)
        return self._built[name]

    def _build(self, definition: Canonical, choose: Choice, has_tiles: bool) -> Built:
        kept = choose(candidates(definition, _BUCKETS, 2, 1, has_tiles=has_tiles))
        return Built(definition, kept, CompiledKernels(self._toolchain, self._place, kept))


def definitions_of(graph: Graph) -> list[Canonical]:
    return [i.canonical for i in instances(graph)]


def definitions_narrowed(name: str) -> list[Canonical]:
    """A program's definitions when operands of bf16 weights are rounded, and kept so."""
    graph = narrow_operands(graph_of(name))
    return [i.canonical for i in instances(graph, starting_cuts(graph))]


def _every(found: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    return found


def _all_of_the_first_form(found: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """The form that is best by extraction under every schedule, the others under one."""
    brief = _one_a_form(found)
    return tuple(c for c in found if c.term is found[0].term or c in brief)


def _one_a_form(found: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """The candidate of each form that is predicted fastest, and the last of the first form."""
    last = [c for c in found if c.term is found[0].term][-1]
    return _fastest(found, lambda c: c.term.key, {last.name})


def _one_a_layout(found: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """The fastest of each form in each layout of its weights."""
    return _fastest(found, lambda c: (c.term.key, c.recipe.layouts), set())


def _fastest(
    found: tuple[Candidate, ...], group: Callable[[Candidate], Hashable], kept: set[str]
) -> tuple[Candidate, ...]:
    """The fastest of each group by prediction, and those that are `kept`, in order."""
    best: dict[Hashable, Candidate] = {}
    for c in found:
        held = best.get(group(c))
        if held is None or c.predicted["all"] < held.predicted["all"]:
            best[group(c)] = c
    names = {c.name for c in best.values()} | kept
    return tuple(c for c in found if c.name in names)


def may_overflow(candidate: Candidate) -> bool:
    """Whether a correction is the reciprocal of a shrinking exponential: only the gate can refuse it."""
    independents = [x.args[1] for x in topological([candidate.term]) if x.kind is Kind.ONLINE]
    return any(x.kind is Kind.RECIP for i in independents for x in topological([i]))
