"""Tile programs broken in one place each, in ways that the verifier must refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias, TypeGuard

from compiler.ir.dtype import DType
from compiler.lower import terms as t
from compiler.lower.terms import Kind, Term, tile_of, topological
from compiler.lower.tiles import (
    Compute,
    Direct,
    Dot,
    Kernel,
    Loop,
    Packed,
    Reduce,
    Scale,
    Statement,
    Store,
    Tile,
)

Item: TypeAlias = Statement | Loop
Body: TypeAlias = tuple[Item, ...]
Edit: TypeAlias = Callable[[Item], Body | None]
"""What takes an item's place; None leaves it alone."""


def mutants(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """Each mutant with a name that says what was broken."""
    edits: dict[str, Edit] = {
        "dropped definition": lambda s: () if _defines(s) else None,
        "unrolled loop": lambda s: s.body if _is_real_loop(s, kernel) else None,
        "loop in itself": lambda s: (replace(s, body=(s,)),) if isinstance(s, Loop) else None,
        "operands exchanged": _exchanged,
        "result transposed": _transposed,
        "reduction left inside": lambda s: _with_expression(s, lambda e: t.reduction(Kind.SUM, "o0", e)),
        "unknown tile": lambda s: _with_expression(s, lambda e: t.add(e, t.tile("nowhere", (), e.dtype))),
        "unknown buffer": lambda s: _with_expression(s, lambda e: t.add(e, t.load("b99", [], e.dtype))),
        "axis without an index": lambda s: _with_expression(s, _unbound),
        "tile axes reversed": _reversed_axes,
        "place without an index": _unplaced,
        "store to an input": lambda s: (replace(s, buffer="b0"),) if isinstance(s, Store) else None,
        "address without an index": _unaddressed,
    }
    for name, edit in edits.items():
        for body in _edited(kernel.body, edit):
            yield name, replace(kernel, body=body)


def _edited(body: Body, edit: Edit) -> Iterator[Body]:
    """Every body in which one item, at any depth, is edited."""
    for i, item in enumerate(body):
        made = edit(item)
        if made is not None:
            yield (*body[:i], *made, *body[i + 1 :])
        if isinstance(item, Loop):
            for inner in _edited(item.body, edit):
                yield (*body[:i], replace(item, body=inner), *body[i + 1 :])


def _defines(item: Item) -> bool:
    """Whether a tile has its first value from this statement; nothing is formed that nobody reads."""
    if isinstance(item, Dot | Reduce):
        return not item.accumulate
    return not isinstance(item, Loop | Store | Scale)


def _is_real_loop(item: Item, kernel: Kernel) -> TypeGuard[Loop]:
    return isinstance(item, Loop) and kernel.extents[item.axis] != item.block


def _with_expression(item: Item, edit: Callable[[Term], Term]) -> Body | None:
    if not isinstance(item, Compute | Scale | Reduce | Store) or item.expr.dtype is not DType.F32:
        return None
    return (replace(item, expr=edit(item.expr)),)


def _unbound(expr: Term) -> Term:
    return t.add(expr, t.cast_to(t.idx("unbound"), DType.F32))


def _exchanged(item: Item) -> Body | None:
    if not isinstance(item, Dot) or item.m is None:
        return None
    a, b = item.a, item.b
    return (replace(item, a=b, b=a),)


def _transposed(item: Item) -> Body | None:
    if not isinstance(item, Dot) or item.m is None:
        return None
    return (replace(item, tile=Tile(item.tile.name, (item.n, item.m), item.tile.dtype)),)


def _reversed_axes(item: Item) -> Body | None:
    """A tile of two axes or more is read with them in another order."""
    if not isinstance(item, Compute | Scale | Reduce | Store):
        return None
    for x in topological([item.expr]):
        if x.kind is Kind.TILE and len(tile_of(x)[1]) > 1:
            name, axes = tile_of(x)
            return (replace(item, expr=t.substitute(item.expr, {x: t.tile(name, axes[::-1], x.dtype)})),)
    return None


def _unplaced(item: Item) -> Body | None:
    if not isinstance(item, Store) or not item.indices:
        return None
    return (replace(item, indices=(t.idx("unbound"), *item.indices[1:])),)


def _unaddressed(item: Item) -> Body | None:
    if not isinstance(item, Dot) or not isinstance(item.b, Direct | Packed):
        return None
    load = item.b.load
    moved = t.load(t.buffer_of(load), (t.idx("unbound"), *load.args[1:]), load.dtype)
    return (replace(item, b=replace(item.b, load=moved)),)
