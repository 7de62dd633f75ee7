"""L1: index terms. A term is a scalar expression with free axes; its tensor is the function of those axes.

Terms are hash-consed: equal terms are one object, so identity is equality and a DAG is shared for free. The
constructors below apply only exact simplifications; everything that changes rounding is a rule of the
e-graph.
Integer terms (i32) are indices: they stay in linear normal form (see `indexing`).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TypeAlias, cast
from weakref import WeakValueDictionary

from compiler.ir.dim import Dim, symbols
from compiler.ir.dtype import DType


class Kind(StrEnum):
    """What a term does. NUM and IDX are leaves; SUM, MAX and ONLINE bind the axis in their attribute."""

    NUM = "num"
    IDX = "idx"
    LOAD = "load"
    EXP2 = "exp2"
    LOG2 = "log2"
    SIN = "sin"
    SQRT = "sqrt"
    RECIP = "recip"
    ADD = "add"
    MUL = "mul"
    DIV = "div"
    MOD = "mod"  # truncated, the sign of the dividend
    LT = "lt"
    FLOOR_DIV = "floordiv"  # integers, floor
    FLOOR_MOD = "floormod"  # integers, never negative for a positive divisor
    SELECT = "select"
    CAST = "cast"
    SUM = "sum"
    MAX = "max"
    ONLINE = "online"  # equals SUM(k, body); promises body = d * i with i = args[1] independent of k
    TILE = "tile"  # a tile buffer, only inside tile programs
    OLD = "old"  # a running reduction's value before this tile, only inside tile programs


UNARY = frozenset({Kind.EXP2, Kind.LOG2, Kind.SIN, Kind.SQRT, Kind.RECIP})
BINARY = frozenset({Kind.ADD, Kind.MUL, Kind.DIV, Kind.MOD, Kind.LT, Kind.FLOOR_DIV, Kind.FLOOR_MOD})
REDUCTIONS = frozenset({Kind.SUM, Kind.MAX, Kind.ONLINE})

Number: TypeAlias = float | int | bool | Dim
Attr: TypeAlias = Number | str | tuple[str, tuple[str, ...]] | None


class Term:
    """An interned node. `free` are its free axes; `key` is a digest of its structure, equal in every
    process.
    """

    __slots__ = ("__weakref__", "args", "attr", "dtype", "free", "key", "kind")

    kind: Kind
    args: tuple[Term, ...]
    attr: Attr
    dtype: DType
    free: frozenset[str]
    key: str

    def __repr__(self) -> str:
        return show(self)

    def __lt__(self, other: Term) -> bool:
        return self.key < other.key


_interned: WeakValueDictionary[tuple[object, ...], Term] = WeakValueDictionary()


def make(kind: Kind, args: tuple[Term, ...], dtype: DType, attr: Attr = None) -> Term:
    """The one term of this structure. Does not simplify: use the named constructors."""
    identity = (kind, args, dtype, _attr_identity(attr), _symbol_bounds(attr))
    found = _interned.get(identity)
    if found is not None:
        return found
    term = Term()
    term.kind, term.args, term.dtype, term.attr = kind, args, dtype, attr
    term.free = _free(kind, args, attr)
    text = f"{kind}|{dtype}|{_attr_identity(attr)!r}|" + "".join(a.key for a in args)
    term.key = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
    _interned[identity] = term
    return term


def _attr_identity(attr: Attr) -> object:
    """Numbers are told apart by their bits: 0.0 and -0.0 differ, NaN equals itself (pitfall C3)."""
    if isinstance(attr, float):
        return ("float", struct.pack("<d", attr))
    if isinstance(attr, Dim):
        return ("dim", str(attr))
    return (type(attr).__name__, attr)


def _symbol_bounds(attr: Attr) -> tuple[tuple[int, int], ...]:
    """Graphs may give one name different bounds: their terms are different objects, of equal keys."""
    return tuple((s.low, s.high) for s in symbols(attr)) if isinstance(attr, Dim) else ()


def _free(kind: Kind, args: tuple[Term, ...], attr: Attr) -> frozenset[str]:
    if kind is Kind.IDX:
        return frozenset({cast(str, attr)})
    if kind is Kind.TILE:
        return frozenset(cast(tuple[str, tuple[str, ...]], attr)[1])
    below: frozenset[str] = frozenset().union(*(a.free for a in args))
    return below - {cast(str, attr)} if kind in REDUCTIONS else below


def axis_of(term: Term) -> str:
    """The axis a reduction binds or an IDX names."""
    assert term.kind in REDUCTIONS or term.kind is Kind.IDX
    return cast(str, term.attr)


def buffer_of(term: Term) -> str:
    assert term.kind is Kind.LOAD
    return cast(str, term.attr)


def tile_of(term: Term) -> tuple[str, tuple[str, ...]]:
    """Name and axes of the tile that a TILE term reads."""
    assert term.kind is Kind.TILE
    return cast(tuple[str, tuple[str, ...]], term.attr)


# Constructors


def num(value: Number, dtype: DType) -> Term:
    if dtype is DType.I32:
        assert isinstance(value, int | Dim)
        assert not isinstance(value, bool)
        return make(Kind.NUM, (), dtype, value)
    if dtype is DType.BOOL:
        return make(Kind.NUM, (), dtype, bool(value))
    assert not isinstance(value, Dim)
    return make(Kind.NUM, (), dtype, float(value))


def idx(axis: str) -> Term:
    return make(Kind.IDX, (), DType.I32, axis)


def load(buffer: str, indices: Iterable[Term], dtype: DType) -> Term:
    return make(Kind.LOAD, tuple(indices), dtype, buffer)


def unary(kind: Kind, x: Term) -> Term:
    assert kind in UNARY
    if kind is Kind.LOG2 and x.kind is Kind.CAST and x.args[0].dtype is DType.BOOL:
        # exact: log2(1) = 0 and log2(0) = -inf, so a mask is a selection
        return select(x.args[0], num(0.0, x.dtype), num(float("-inf"), x.dtype))
    return make(kind, (x,), x.dtype)


def add(a: Term, b: Term) -> Term:
    assert a.dtype is b.dtype, (a, b)
    return make(Kind.ADD, (a, b), a.dtype)


def mul(a: Term, b: Term) -> Term:
    assert a.dtype is b.dtype, (a, b)
    if is_number(a, 1.0):
        return b
    if is_number(b, 1.0):
        return a
    return make(Kind.MUL, (a, b), a.dtype)


def negate(x: Term) -> Term:
    return mul(x, num(-1.0, x.dtype))


def sub(a: Term, b: Term) -> Term:
    """a - b in floats, written a + b * -1, which IEEE 754 makes exact."""
    return add(a, negate(b))


def recip(x: Term) -> Term:
    return unary(Kind.RECIP, x)


def exp2(x: Term) -> Term:
    return unary(Kind.EXP2, x)


def binary(kind: Kind, a: Term, b: Term) -> Term:
    if kind is Kind.ADD:
        return add(a, b)
    if kind is Kind.MUL:
        return mul(a, b)
    assert kind in BINARY
    return make(kind, (a, b), DType.BOOL if kind is Kind.LT else a.dtype)


def select(cond: Term, a: Term, b: Term) -> Term:
    if cond.kind is Kind.NUM:
        return a if cond.attr else b
    return make(Kind.SELECT, (cond, a, b), a.dtype)


def cast_to(x: Term, dtype: DType) -> Term:
    """`x` as `dtype`. Widening then narrowing back is exact, so it disappears."""
    if x.dtype is dtype:
        return x
    widened = x.kind is Kind.CAST and x.dtype is DType.F32 and x.args[0].dtype is dtype
    if widened and dtype in (DType.BF16, DType.F16):
        return x.args[0]
    return make(Kind.CAST, (x,), dtype)


def reduction(kind: Kind, axis: str, body: Term) -> Term:
    assert kind in (Kind.SUM, Kind.MAX)
    return make(kind, (body,), body.dtype, axis)


def online(axis: str, body: Term, independent: Term) -> Term:
    return make(Kind.ONLINE, (body, independent), body.dtype, axis)


def tile(name: str, axes: Iterable[str], dtype: DType) -> Term:
    return make(Kind.TILE, (), dtype, (name, tuple(axes)))


def old(x: Term) -> Term:
    return make(Kind.OLD, (x,), x.dtype)


def rebuild(term: Term, args: tuple[Term, ...]) -> Term:
    """The same operation over other arguments, through the simplifying constructors."""
    if args == term.args:
        return term
    if term.kind in UNARY:
        return unary(term.kind, args[0])
    if term.kind in (Kind.ADD, Kind.MUL) and term.dtype is not DType.I32:
        return binary(term.kind, *args)
    if term.kind is Kind.SELECT:
        return select(*args)
    if term.kind is Kind.CAST:
        return cast_to(args[0], term.dtype)
    return make(term.kind, args, term.dtype, term.attr)


# Questions and walks


def is_number(term: Term, value: float) -> bool:
    return term.kind is Kind.NUM and term.dtype is not DType.I32 and term.attr == value


def is_zero_index(term: Term) -> bool:
    return term.kind is Kind.NUM and term.dtype is DType.I32 and term.attr == 0


def topological(roots: Iterable[Term]) -> list[Term]:
    """Every term reachable from `roots`, arguments before users."""
    seen: set[Term] = set()
    out: list[Term] = []
    stack: list[tuple[Term, bool]] = [(r, False) for r in reversed(list(roots))]
    while stack:
        term, done = stack.pop()
        if done:
            out.append(term)
        elif term not in seen:
            seen.add(term)
            stack.append((term, True))
            stack.extend((a, False) for a in reversed(term.args) if a not in seen)
    return out


def contains(root: Term, wanted: Term) -> bool:
    return any(t is wanted for t in topological([root]))


def substitute(root: Term, replacements: Mapping[Term, Term]) -> Term:
    """Replace whole terms. The caller guarantees that no replacement is captured by a binder below `root`."""
    done: dict[Term, Term] = dict(replacements)
    for term in topological([root]):
        if term not in done:
            done[term] = rebuild(term, tuple(done[a] for a in term.args))
    return done[root]


def products(body: Term) -> Iterator[Term]:
    """The factors of a product, left to right."""
    if body.kind is Kind.MUL:
        yield from products(body.args[0])
        yield from products(body.args[1])
    else:
        yield body


_SHOW: Mapping[Kind, Callable[..., str]] = {
    Kind.ADD: lambda a, b: f"({a} + {b})",
    Kind.MUL: lambda a, b: f"({a} * {b})",
    Kind.DIV: lambda a, b: f"({a} / {b})",
    Kind.LT: lambda a, b: f"({a} < {b})",
    Kind.FLOOR_DIV: lambda a, b: f"({a} // {b})",
    Kind.FLOOR_MOD: lambda a, b: f"({a} % {b})",
}


def show(term: Term) -> str:
    """A readable form; not parsed back."""
    args = [show(a) for a in term.args]
    match term.kind:
        case Kind.NUM:
            return f"{term.attr:g}" if isinstance(term.attr, float) else str(term.attr)
        case Kind.IDX:
            return str(term.attr)
        case Kind.LOAD:
            return f"{term.attr}[{', '.join(args)}]"
        case Kind.TILE:
            return cast(tuple[str, tuple[str, ...]], term.attr)[0]
        case Kind.CAST:
            return f"{term.dtype}({args[0]})"
        case kind if kind in _SHOW:
            return _SHOW[kind](*args)
        case kind if kind in REDUCTIONS:
            return f"{kind}_{term.attr}({', '.join(args)})"
        case kind:
            return f"{kind}({', '.join(args)})"
