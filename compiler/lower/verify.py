"""The tile verifier: every tile is defined before it is read, with its axes in order, inside loops that
bind them, and every axis is visited as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable

from compiler.lower.errors import TileError
from compiler.lower.terms import Kind, Term, buffer_of, tile_of, topological
from compiler.lower.tiles import (
    Compute,
    Copy,
    Direct,
    Dot,
    Fill,
    Kernel,
    Loop,
    Operand,
    Packed,
    Reduce,
    Scale,
    Statement,
    Store,
    Tile,
    loops,
)


def verify_kernel(kernel: Kernel) -> None:
    """Check the rules of a tile program.

    Raises:
        TileError: the first broken rule.
    """
    looped = {loop.axis for loop in loops(kernel.body)}
    whole = {a for a in kernel.blocks if a not in looped}
    for axis in whole:
        if kernel.extents[axis] not in (kernel.blocks[axis], 0):
            raise TileError(f"axis {axis} of {kernel.extents[axis]} points has no loop")
    _verify_parallel(kernel)
    _verify_body(kernel, kernel.body, whole, {})


def _verify_parallel(kernel: Kernel) -> None:
    """The loops that threads share are nested, each the last item of its body, and know no bounds."""
    body = kernel.body
    for _ in range(kernel.parallel):
        loop = body[-1] if body else None
        if not isinstance(loop, Loop) or (loop.lower, loop.upper) != (None, None):
            raise TileError(f"{kernel.parallel} loops are shared among threads, and {loop} is none of them")
        body = loop.body


def _verify_body(
    kernel: Kernel, body: tuple[Statement | Loop, ...], bound: set[str], defined: dict[str, Tile]
) -> None:
    """`bound` are the axes with an index here; tiles defined in a loop are gone after it."""
    for item in body:
        if isinstance(item, Loop):
            if item.axis in bound:
                raise TileError(f"axis {item.axis} is looped twice")
            for limit in (item.lower, item.upper):
                if limit is not None:
                    _verify_expression(kernel, limit, (), bound, defined)
            _verify_body(kernel, item.body, bound | {item.axis}, dict(defined))
        else:
            _verify_statement(kernel, item, bound, defined)


def _verify_statement(kernel: Kernel, s: Statement, bound: set[str], defined: dict[str, Tile]) -> None:
    match s:
        case Fill():
            defined[s.tile.name] = s.tile
        case Copy():
            _verify_tile(s.source, defined)
            defined[s.tile.name] = s.tile
        case Compute():
            _verify_expression(kernel, s.expr, s.tile.axes, bound, defined)
            defined[s.tile.name] = s.tile
        case Scale():
            _verify_tile(s.tile, defined)
            _verify_expression(kernel, s.expr, s.tile.axes, bound, defined)
        case Reduce():
            _verify_expression(kernel, s.expr, (*s.tile.axes, s.axis), bound, defined)
            _verify_result(s.tile, s.accumulate, defined)
        case Dot():
            _verify_dot(kernel, s, bound, defined)
        case Store():
            _verify_expression(kernel, s.expr, s.axes, bound, defined)
            for index in (*s.indices, *(c for c, _ in s.limits)):
                _verify_expression(kernel, index, s.axes, bound, defined)
            if s.buffer not in {p.buffer for p in kernel.params if p.is_written}:
                raise TileError(f"{s.buffer} is stored to, and is no parameter that is written")


def _verify_result(tile: Tile, accumulate: bool, defined: dict[str, Tile]) -> None:
    if accumulate:
        _verify_tile(tile, defined)
    defined[tile.name] = tile


def _verify_tile(tile: Tile, defined: dict[str, Tile]) -> None:
    if defined.get(tile.name) != tile:
        raise TileError(f"tile {tile.name}{tile.axes} is read where {defined.get(tile.name)} is defined")


def _verify_dot(kernel: Kernel, s: Dot, bound: set[str], defined: dict[str, Tile]) -> None:
    if s.tile.axes != tuple(a for a in (s.m, s.n) if a is not None):
        raise TileError(f"dot into {s.tile.name}{s.tile.axes} computes [{s.m}, {s.n}]")
    for operand, axes in ((s.a, tuple(a for a in (s.m, s.k) if a is not None)), (s.b, (s.k, s.n))):
        _verify_operand(operand, axes, defined)
        if not isinstance(operand, Tile):
            is_packed = isinstance(operand, Packed)
            _verify_expression(kernel, operand.load, axes, bound, defined, packed=is_packed)
    _verify_result(s.tile, s.accumulate, defined)


def _verify_operand(operand: Operand, axes: tuple[str, ...], defined: dict[str, Tile]) -> None:
    match operand:
        case Tile():
            _verify_tile(operand, defined)
            if operand.axes != axes:
                raise TileError(f"operand {operand.name}{operand.axes} is wanted as {axes}")
        case Direct():
            if tuple(a for a in (operand.row, operand.col) if a is not None) != axes:
                raise TileError(f"direct operand ({operand.row}, {operand.col}) is wanted as {axes}")
        case Packed():
            if (operand.k, operand.column) != axes:
                raise TileError(f"packed operand ({operand.k}, {operand.column}) is wanted as {axes}")


def _verify_expression(
    kernel: Kernel,
    expr: Term,
    axes: Iterable[str],
    bound: set[str],
    defined: dict[str, Tile],
    *,
    packed: bool = False,
) -> None:
    """`packed`: the root is a load of packed panels; every other load reads rows."""
    here = set(axes)
    layouts = {p.buffer: p.is_packed for p in kernel.params}
    for term in topological([expr]):
        if term.kind is Kind.TILE:
            name, tile_axes = tile_of(term)
            found = defined.get(name)
            if found is None or found.axes != tile_axes:
                raise TileError(f"{term!r} reads a tile that is not defined here with axes {tile_axes}")
            if not set(found.axes) <= here:
                raise TileError(f"{term!r} has axes {found.axes}, its reader only {tuple(here)}")
        elif term.kind is Kind.IDX:
            axis = str(term.attr)
            if axis not in bound or (kernel.blocks[axis] > 1 and axis not in here):
                raise TileError(f"index {axis} has no value in an expression over {tuple(here)}")
        elif term.kind is Kind.LOAD:
            if layouts.get(buffer_of(term)) is not (packed and term is expr):
                raise TileError(f"{term!r} reads a buffer that is no parameter of this layout")
        elif term.kind in (Kind.SUM, Kind.MAX, Kind.ONLINE, Kind.OLD):
            raise TileError(f"{term.kind} is left inside an expression")
