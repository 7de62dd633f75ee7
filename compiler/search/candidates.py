"""Candidates for one definition: every form of its term under every schedule that fits, ranked by the cost
model.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.egraph.extract import variants
from compiler.egraph.saturate import saturate
from compiler.ir.dtype import DType
from compiler.lower.canonical import Canonical
from compiler.lower.errors import FormationError, TileError
from compiler.lower.formation import form
from compiler.lower.schedule import Schedule
from compiler.lower.terms import Kind, Term, cast_to
from compiler.lower.tiles import Kernel
from compiler.lower.verify import verify_kernel
from compiler.search.cost import predicted_seconds
from compiler.search.evolve import Genome
from compiler.search.space import schedules

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A range of step sizes, and the sizes at which candidates for it are measured."""

    name: str
    low: int
    high: int
    representative: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What fixes a row's bits: candidates of one recipe may serve different buckets, others may not."""

    term: str
    stream_block: int
    layouts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel to try. `predicted` is in seconds, by bucket name."""

    name: str
    term: Term
    schedule: Schedule
    kernel: Kernel
    predicted: Mapping[str, float]

    @property
    def recipe(self) -> Recipe:
        block = self.schedule.stream_block if self.schedule.stream else 0
        return Recipe(self.term.key, block, tuple(p.layout for p in self.kernel.params))


def forms(definition: Canonical, seeds: int) -> tuple[Term, ...]:
    """Distinct forms of a definition's term, best by the extraction cost first.

    A narrowing cast at the root stays there: algebra never moves a term through it.
    """
    root, core = definition.term, algebra_of(definition.term)
    if core.dtype is not DType.F32:
        return (root,)
    found = variants(saturate(core, extents=definition.extents), core, seeds)
    return tuple(cast_to(f, root.dtype) for f in found)


def algebra_of(term: Term) -> Term:
    """What rules may change of a term."""
    return term.args[0] if term.kind is Kind.CAST and term.args[0].dtype is DType.F32 else term


def candidates(
    definition: Canonical, buckets: Sequence[Bucket], threads: int, seeds: int, *, has_tiles: bool = False
) -> tuple[Candidate, ...]:
    """Every candidate of the space that can be formed.

    Raises:
        FormationError: no schedule fits this definition.
    """
    return Nursery(definition, buckets, threads, seeds).fill(has_tiles=has_tiles)


class Nursery:
    """Forms candidates of one definition from genomes, each once; `refused` says why one was not."""

    def __init__(self, definition: Canonical, buckets: Sequence[Bucket], threads: int, seeds: int) -> None:
        self._definition, self._buckets, self._threads = definition, buckets, threads
        self.forms = forms(definition, seeds)
        self.formed: dict[Genome, Candidate] = {}
        self.refused: dict[Genome, str] = {}

    def fill(self, *, has_tiles: bool) -> tuple[Candidate, ...]:
        """Form the whole space.

        Raises:
            FormationError: no schedule fits this definition.
        """
        for number, term in enumerate(self.forms):
            for schedule in schedules(self._definition.with_term(term), has_tiles=has_tiles):
                self.form(Genome(number, schedule))
        if not self.formed:
            refused = "; ".join(list(self.refused.values())[:3])
            raise FormationError(f"no schedule fits {self._definition.term!r:.200}: {refused}")
        return tuple(self.formed.values())

    def form(self, genome: Genome) -> Candidate | None:
        """The candidate of a genome, or None where its schedule does not fit."""
        if genome in self.formed or genome in self.refused:
            return self.formed.get(genome)
        term, schedule = self.forms[genome.form], genome.schedule
        try:
            kernel = form(self._definition.with_term(term), schedule)
            verify_kernel(kernel)
        except (FormationError, TileError) as error:
            log.debug("refused %s: %s", schedule.describe(), error)
            self.refused[genome] = f"{schedule.describe()}: {error}"
            return None
        predicted = {
            b.name: predicted_seconds(kernel, b.representative, self._threads) for b in self._buckets
        }
        digest = hashlib.sha256(f"{term.key}|{schedule!r}".encode()).hexdigest()[:12]
        name = f"k_{self._definition.key}_{digest}"
        self.formed[genome] = Candidate(name, term, schedule, kernel, predicted)
        return self.formed[genome]


def shortlist(
    found: Sequence[Candidate], buckets: Sequence[Bucket], per_bucket: int
) -> tuple[Candidate, ...]:
    """The best `per_bucket` of each bucket by prediction, and beside them the best of every other weight
    layout;
    each recipe that can win brings its best for every bucket along.
    """

    def ranked(some: Sequence[Candidate], bucket: Bucket) -> list[Candidate]:
        return sorted(some, key=lambda c: (c.predicted[bucket.name], c.name))

    kept = {c.name: c for b in buckets for c in ranked(found, b)[:per_bucket]}
    if per_bucket > 1:
        for layouts in dict.fromkeys(c.recipe.layouts for c in found):
            best = ranked([c for c in found if c.recipe.layouts == layouts], buckets[0])[0]
            kept.setdefault(best.name, best)
    for recipe in {c.recipe for c in kept.values()}:
        same = [c for c in found if c.recipe == recipe]
        for bucket in buckets:
            best = ranked(same, bucket)[0]
            kept.setdefault(best.name, best)
    return tuple(c for c in found if c.name in kept)
