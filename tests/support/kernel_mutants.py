"""Kernels and terms that are well formed and wrong: what only the gate can refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from compiler.ir import DType
from compiler.lower import terms as t
from compiler.lower.indexing import add_index, const_index, linear
from compiler.lower.terms import Kind, Term, topological
from compiler.lower.tiles import Compute, Copy, Dot, Fill, Kernel, Loop, Reduce, Scale, Statement

Item = Statement | Loop


def edited(kernel: Kernel, edit: Callable[[Item], tuple[Item, ...]]) -> Kernel:
    """The kernel with every item, innermost first, replaced by what `edit` makes of it."""

    def of(body: tuple[Item, ...]) -> tuple[Item, ...]:
        out: list[Item] = []
        for item in body:
            inner = replace(item, body=of(item.body)) if isinstance(item, Loop) else item
            out.extend(edit(inner))
        return tuple(out)

    made = replace(kernel, body=of(kernel.body))
    assert made != kernel, "the mutant differs"
    return made


def _without_corrections(item: Item) -> tuple[Item, ...]:
    return () if isinstance(item, Scale) else (item,)


def _corrected_twice(item: Item) -> tuple[Item, ...]:
    return (item, item) if isinstance(item, Scale) else (item,)


def _old_taken_late(item: Item) -> tuple[Item, ...]:
    """The copy of a running maximum is made after its update, so that no difference is seen."""
    if not isinstance(item, Loop):
        return (item,)
    copies = {s.source.name: s for s in item.body if isinstance(s, Copy)}
    rest = [s for s in item.body if not isinstance(s, Copy)]
    out: list[Item] = []
    for s in rest:
        out.append(s)
        if isinstance(s, Reduce) and s.kind is Kind.MAX and s.tile.name in copies:
            out.append(copies[s.tile.name])
    return (replace(item, body=tuple(out)),)


def starts_at_one(item: Item) -> tuple[Item, ...]:
    return (replace(item, value=1.0),) if isinstance(item, Fill) and item.value == 0.0 else (item,)


def _bound_moved(by: int) -> Callable[[Item], tuple[Item, ...]]:
    def edit(item: Item) -> tuple[Item, ...]:
        if not isinstance(item, Loop) or item.upper is None:
            return (item,)
        return (replace(item, upper=add_index(item.upper, const_index(by))),)

    return edit


def _accumulated_in_bf16(item: Item) -> tuple[Item, ...]:
    """Each accumulator is rounded after each tile that is added to it."""
    if not isinstance(item, Dot | Reduce) or not item.accumulate:
        return (item,)
    held = t.tile(item.tile.name, item.tile.axes, item.tile.dtype)
    rounded = t.make(Kind.CAST, (t.make(Kind.CAST, (held,), DType.BF16),), DType.F32)
    return item, Compute(item.tile, rounded)


KERNEL_MUTANTS: Mapping[str, Callable[[Item], tuple[Item, ...]]] = {
    "correction dropped": _without_corrections,
    "corrected twice": _corrected_twice,
    "old value taken late": _old_taken_late,
    "bound one short": _bound_moved(-1),
    "bound one long": _bound_moved(1),
    "accumulated in bf16": _accumulated_in_bf16,
}


def without_maximum(term: Term) -> Term:
    """Exponentials of what they are, with nothing subtracted."""
    maxima = {x: t.num(0.0, DType.F32) for x in topological([term]) if x.kind is Kind.MAX}
    assert maxima, "there is a maximum to leave out"
    return t.substitute(term, maxima)


def with_masks(term: Term, edit: Callable[[Term], Term]) -> Term:
    """Every comparison of indices replaced."""
    found = {x: edit(x) for x in topological([term]) if x.kind is Kind.LT and x.args[0].dtype is DType.I32}
    assert found, "there is a mask to break"
    return t.substitute(term, found)


def exchanged(less: Term) -> Term:
    """The other side of the diagonal."""
    return t.binary(Kind.LT, less.args[1], less.args[0])


def moved(by: int) -> Callable[[Term], Term]:
    """A mask that lets `by` more positions through."""

    def edit(less: Term) -> Term:
        a, b = less.args
        assert linear(b).constant == 1, "own position + 1"
        return t.binary(Kind.LT, a, add_index(b, const_index(by)))

    return edit
