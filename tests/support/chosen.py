"""Programs of the library, ready to be formed: their one definition, its chosen form, and a kernel of it."""

from __future__ import annotations

from functools import cache

from compiler.lower.canonical import Canonical
from compiler.lower.formation import form
from compiler.lower.schedule import LoopChoice, Schedule
from compiler.lower.terms import REDUCTIONS, Term, axis_of, topological
from compiler.lower.tiles import Kernel
from compiler.search.candidates import forms
from tests.support.chained import instances
from tests.support.programs import graph_of


@cache
def definition_of(name: str) -> Canonical:
    """The definition of a program that has one, as written."""
    (instance,) = instances(graph_of(name))
    return instance.canonical


@cache
def chosen(name: str) -> Canonical:
    """The same in the form that extraction likes best."""
    definition = definition_of(name)
    return definition.with_term(forms(definition, 0)[0])


def stream_of(definition: Canonical) -> str:
    """The reduced axis of unknown extent."""
    (axis,) = [a for a in reduced_axes(definition.term) if not isinstance(definition.extents[a], int)]
    return axis


def reduced_axes(term: Term) -> list[str]:
    bound = [axis_of(x) for x in topological([term]) if x.kind in REDUCTIONS]
    return list(dict.fromkeys(bound))


def row_kernel(definition: Canonical, block: int) -> Kernel:
    """A kernel with a loop over every output axis but the last, which streams in tiles of `block`."""
    inside = definition.axes[-1:] if len(definition.axes) > 1 else ()
    loops = tuple(LoopChoice(a, 1) for a in definition.axes if a not in inside)
    return form(definition, Schedule(loops, len(loops), stream_of(definition), block))
