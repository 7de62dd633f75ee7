"""Cuts stitched across the whole model: moves of one class at a time, kept where the whole is faster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.ir.graph import Node
from compiler.lower.errors import FormationError, LoweringError
from compiler.search.arrange import Arrangement, arrange, cut_classes
from compiler.search.setting import Report
from compiler.search.tune import NoCandidate
from compiler.search.tuner import Tuner, relative

_WORTH_TRYING = 1.1
"""A flip predicted to be slower than this is not measured."""
_WORTH_KEEPING = 0.985
"""A flip must beat the best by more than the clock's noise."""


@dataclass(frozen=True, slots=True)
class Move:
    """A change of the cuts that was tried. Times are relative to the start; `measured` None was never
    timed.
    """

    name: str
    predicted: float
    measured: float | None
    is_kept: bool
    refusal: str = ""


def stitch(
    best: Arrangement, tuner: Tuner, flips: int, report: Report
) -> tuple[Arrangement, tuple[Move, ...]]:
    """Flip classes of cuts, most promising first, and keep a flip that measures faster; again while any does.

    Costs are those of kernels that were timed. What a flip shares with the best is not tuned anew.
    """
    moves: list[Move] = []
    tried: set[str] = set()
    base = tuner.measured(best)
    is_better = True
    while is_better and len(moves) < flips and tuner.is_timed(best):
        is_better = False
        promising = sorted(_proposals(best, tuner, tried), key=lambda p: (p.predicted, p.name))
        for proposal in promising[: flips - len(moves)]:
            if tuner.is_over():
                return best, tuple(moves)
            report(len(moves) / flips, f"trying {proposal.name}")
            tried.add(proposal.name)
            candidate = arrange(best.graph, best.flipped(proposal.nodes))
            try:
                tuner.tune(candidate, lambda f, m: None)
            except (NoCandidate, FormationError) as error:
                moves.append(Move(proposal.name, proposal.predicted, None, False, str(error)[:200]))
                continue
            if not tuner.is_timed(candidate):  # a busy machine, or no time left: there is nothing to compare
                moves.append(Move(proposal.name, proposal.predicted, None, False, "it was not timed"))
                continue
            found = relative(tuner.measured(candidate), base)
            is_kept = found < _WORTH_KEEPING * relative(tuner.measured(best), base)
            moves.append(Move(proposal.name, proposal.predicted, found, is_kept))
            if is_kept:
                best, is_better = candidate, True
    return best, tuple(moves)


@dataclass(frozen=True, slots=True)
class _Proposal:
    name: str
    nodes: tuple[Node, ...]
    predicted: float


def _proposals(best: Arrangement, tuner: Tuner, tried: set[str]) -> Iterator[_Proposal]:
    """Every other class flip that can be formed, with its predicted time relative to that of `best`."""
    base = tuner.predicted(best)
    for name, nodes in cut_classes(best.graph).items():
        if name in tried or tuner.is_over():
            continue
        try:
            other = arrange(best.graph, best.flipped(nodes))
            found = relative(tuner.predicted(other), base)
        except (FormationError, LoweringError):
            continue
        if found < _WORTH_TRYING:
            yield _Proposal(name, nodes, found)
