"""Random definitions of reductions that read each other, where the rules of the e-graph have most to do.

Values stay finite: what is divided by is positive, and an exponent has a maximum subtracted or is bounded.
"""

from __future__ import annotations

from hypothesis import strategies as st

from compiler.ir import DType, symbol
from compiler.lower import terms as t
from compiler.lower.canonical import Buffer, Canonical, Role
from compiler.lower.definitions import Place
from compiler.lower.indexing import add_index, const_index
from compiler.lower.terms import Kind, Term

ROWS, COLUMNS = symbol("T", 1, 64), symbol("S", 1, 64)
_I, _K = t.idx("o0"), t.idx("k0")
_TABLE = t.load("b0", [_I, _K], DType.F32)
_ALONG = t.load("b1", [_K], DType.F32)
_ROW = t.load("b2", [_I], DType.F32)
_BUFFERS = {
    "b0": Buffer((ROWS, COLUMNS), DType.F32, Role.INPUT),
    "b1": Buffer((COLUMNS,), DType.F32, Role.INPUT),
    "b2": Buffer((ROWS,), DType.F32, Role.INPUT),
    "out": Buffer((ROWS,), DType.F32, Role.VALUE),
}


@st.composite
def cascades(draw: st.DrawFn) -> Canonical:
    """A row of values: a few reductions over one axis, each of which may read those before it."""
    made: list[Term] = []
    for _ in range(draw(st.integers(1, 3))):
        body = draw(_varying(made, 3))
        made.append(t.reduction(draw(st.sampled_from([Kind.SUM, Kind.SUM, Kind.MAX])), "k0", body))
    root = made[-1]
    for other in made[:-1]:
        if draw(st.booleans()):
            root = t.add(root, t.mul(other, _ROW))
    extents = {"o0": ROWS, "k0": COLUMNS}
    key = f"cascade {root.key}"
    return Canonical(("o0",), extents, root, Place("out", (_I,)), DType.F32, _BUFFERS, key)


@st.composite
def _varying(draw: st.DrawFn, made: list[Term], depth: int) -> Term:
    """A value that varies along the reduced axis."""
    if depth == 0:
        return draw(st.sampled_from([_TABLE, _ALONG]))
    inner = draw(_varying(made, depth - 1))
    match draw(st.integers(0, 7)):
        case 0:
            return t.mul(inner, draw(_still(made)))
        case 1:
            return t.mul(draw(_still(made)), inner)
        case 2:
            return t.add(inner, draw(_still(made)))
        case 3:
            return t.mul(inner, draw(_varying(made, 0)))
        case 4:
            return t.binary(Kind.DIV, inner, _positive(draw(_still(made))))
        case 5:
            return _shifted_exponential(inner)
        case 6:
            condition = t.binary(Kind.LT, _K, add_index(_I, const_index(draw(st.integers(1, 3)))))
            return t.select(condition, inner, t.num(0.0, DType.F32))
        case _:
            return t.mul(inner, t.recip(_positive(draw(st.sampled_from([_ROW, _TABLE])))))


def _still(made: list[Term]) -> st.SearchStrategy[Term]:
    """A value that does not vary along the reduced axis."""
    shifts = [t.negate(r) for r in made]
    return st.sampled_from([_ROW, *made, *shifts, *(t.mul(r, _ROW) for r in made)])


def _positive(x: Term) -> Term:
    return t.add(t.mul(x, x), t.num(1.0, DType.F32))


def _shifted_exponential(x: Term) -> Term:
    return t.exp2(t.sub(x, t.reduction(Kind.MAX, "k0", x)))
