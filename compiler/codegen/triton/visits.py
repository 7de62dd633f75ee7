"""Which points of a sequential loop matter to any lane of a tile.

Formation bounds a loop where one number bounds the whole tile. Here a comparison may vary along the tile:
if every reduction of the loop adds its identity where it is false, the loop ends at the largest bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.ir.dtype import DType
from compiler.lower import terms as t
from compiler.lower.bounds import fold
from compiler.lower.terms import Kind, Term, topological
from compiler.lower.tiles import Compute, Copy, Dot, Loop, Operand, Reduce, Scale, Statement, Tile

_INF = float("inf")


@dataclass(frozen=True, slots=True)
class Visits:
    """Index terms: only points below some lane's every `uppers`, and above its every `lowers`, matter."""

    uppers: tuple[Term, ...]
    lowers: tuple[Term, ...]


def loop_visits(loop: Loop) -> Visits:
    """The bounds of a loop that its own comparisons prove; formation's are left to it."""
    uppers: list[Term] = []
    lowers: list[Term] = []
    if not any(isinstance(s, Loop) for s in loop.body):
        for condition in _comparisons(loop):
            if _is_idle_without(loop, condition):
                first, second = condition.args
                if first is t.idx(loop.axis):
                    uppers.append(second)
                else:
                    lowers.append(first)
    return Visits(tuple(uppers), tuple(lowers))


def _comparisons(loop: Loop) -> Iterator[Term]:
    """Comparisons of the loop's index with something that does not move with it."""
    axis = t.idx(loop.axis)
    for term in topological([s.expr for s in loop.body if isinstance(s, Compute | Reduce)]):
        if term.kind is not Kind.LT or term.args[0].dtype is not DType.I32:
            continue
        for here, there in (term.args, term.args[::-1]):
            if here is axis and loop.axis not in there.free:
                yield term


def _is_idle_without(loop: Loop, condition: Term) -> bool:
    """Whether one turn of the loop changes nothing where `condition` is false."""
    known: dict[Term, float | None] = {}
    return all(_is_idle(s, condition, known) for s in loop.body)


def _is_idle(s: Statement | Loop, false: Term, known: dict[Term, float | None]) -> bool:
    """Follow one statement: note what its tile holds, tell whether it accumulates only the identity."""
    match s:
        case Compute():
            known[_read(s.tile)] = fold(s.expr, false, known)
            return True
        case Reduce():
            value = fold(s.expr, false, known)
            identity = -_INF if s.kind is Kind.MAX else 0.0
            return _reduced(s.tile, value if value == identity else None, identity, s.accumulate, known)
        case Dot():
            is_zero = 0.0 in (_operand(s.a, known), _operand(s.b, known))
            return _reduced(s.tile, 0.0 if is_zero else None, 0.0, s.accumulate, known)
        case Copy() | Scale():
            return True  # a correction by a maximum that did not move
        case _:
            return False


def _reduced(
    tile: Tile, value: float | None, identity: float, accumulate: bool, known: dict[Term, float | None]
) -> bool:
    if accumulate:
        return value == identity
    known[_read(tile)] = value
    return True


def _operand(operand: Operand, known: dict[Term, float | None]) -> float | None:
    return known.get(_read(operand)) if isinstance(operand, Tile) else None


def _read(tile: Tile) -> Term:
    return t.tile(tile.name, tile.axes, tile.dtype)
