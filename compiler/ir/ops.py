"""The vocabulary of a graph: 15 primitives, a few composites, leaves and views, with their rules and meaning.

`PRIMITIVES` and `COMPOSITES` are the one table; `docs/primitives.md` is generated from it. The NumPy
functions define the meaning on compute values (float32 or float64, int32, bool); `reference.py` rounds half
floats per op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from compiler.ir import meaning, rules
from compiler.ir.dtype import Array


class Op(StrEnum):
    """What a node computes. `PRIMITIVES`, `COMPOSITES`, `LEAVES` and `VIEWS` partition it."""

    EXP2 = "exp2"
    LOG2 = "log2"
    SIN = "sin"
    SQRT = "sqrt"
    RECIP = "recip"
    ADD = "add"
    MUL = "mul"
    MOD = "mod"
    LESS_THAN = "less_than"
    SUM = "sum"
    MAX = "max"
    GATHER = "gather"
    SCATTER = "scatter"
    CAST = "cast"
    IOTA = "iota"

    SELECT = "select"
    DIV = "div"
    FLOOR_DIV = "floor_div"

    INPUT = "input"
    WEIGHT = "weight"
    CONST = "const"

    PERMUTE = "permute"
    EXPAND = "expand"
    RESHAPE = "reshape"
    SLICE = "slice"


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One row of the table.

    `arity` is the number of operands, the least number where `is_variadic` (one index tensor). `numpy` takes
    the operands, then: reductions the axis; Cast the dtype (and the compute float); Iota the extent.
    """

    op: Op
    arity: int
    shape: rules.ShapeRule
    dtype: rules.DTypeRule
    meaning: str
    numpy: Callable[..., Array]
    is_variadic: bool = False


def _table(*rows: OpSpec) -> Mapping[Op, OpSpec]:
    return {row.op: row for row in rows}


PRIMITIVES: Mapping[Op, OpSpec] = _table(
    OpSpec(
        Op.EXP2,
        1,
        rules.SAME,
        rules.FLOAT,
        "2 to the power of x. exp2(-inf) = 0, exp2(inf) = inf.",
        meaning.exp2,
    ),
    OpSpec(
        Op.LOG2,
        1,
        rules.SAME,
        rules.FLOAT,
        "Logarithm to base 2. log2(0) = log2(-0.0) = -inf, NaN for x < 0; so log2 of a cast bool is exactly "
        "0 or -inf, the additive mask.",
        meaning.log2,
    ),
    OpSpec(Op.SIN, 1, rules.SAME, rules.FLOAT, "Sine of x radians; NaN for infinities.", meaning.sin),
    OpSpec(
        Op.SQRT,
        1,
        rules.SAME,
        rules.FLOAT,
        "Square root, correctly rounded. sqrt(-0.0) = -0.0, NaN for x < 0.",
        meaning.sqrt,
    ),
    OpSpec(
        Op.RECIP,
        1,
        rules.SAME,
        rules.FLOAT,
        "1 / x, correctly rounded. recip(0.0) = inf, recip(-0.0) = -inf, recip(-inf) = -0.0.",
        meaning.recip,
    ),
    OpSpec(Op.ADD, 2, rules.SAME, rules.NUMBER, "x + y. i32 wraps modulo 2^32.", meaning.add),
    OpSpec(Op.MUL, 2, rules.SAME, rules.NUMBER, "x * y. i32 wraps modulo 2^32.", meaning.mul),
    OpSpec(
        Op.MOD,
        2,
        rules.SAME,
        rules.NUMBER,
        "Remainder of truncated division: C's fmod, with the sign of the dividend, exact. Floats: mod(x, 0) "
        "and mod(inf, y) are NaN, mod(x, inf) = x. i32: dividing by zero is an error.",
        meaning.mod,
    ),
    OpSpec(
        Op.LESS_THAN,
        2,
        rules.SAME,
        rules.COMPARE,
        "x < y, a bool. False if either is NaN; -0.0 is not less than 0.0. i32 compare as integers.",
        meaning.less_than,
    ),
    OpSpec(
        Op.SUM,
        1,
        rules.REDUCE,
        rules.NUMBER,
        "Sum over one axis, which the shape loses. Half floats accumulate in f32 and round once at the end; "
        "i32 wraps. The order is free here and fixed once per artifact by its numeric recipe. An empty axis "
        "gives 0.",
        meaning.sum_axis,
    ),
    OpSpec(
        Op.MAX,
        1,
        rules.REDUCE,
        rules.NUMBER,
        "Largest over one axis, which the shape loses. A NaN wins; of -0.0 and 0.0 either may be given. An "
        "empty axis gives -inf (i32: -2^31).",
        meaning.max_axis,
    ),
    OpSpec(
        Op.GATHER,
        2,
        rules.GATHER,
        rules.GATHER_DTYPE,
        "Read by coordinates: inputs (data, i_0 .. i_{m-1}), m >= 1, the indices i32 of one shape I; "
        "out[idx, rest] = data[i_0[idx], .., i_{m-1}[idx], rest], of shape I + data.shape[m:]. An index "
        "outside its axis (negative ones too) is an error in the reference interpreter; compiled programs "
        "may clamp it.",
        meaning.gather,
        is_variadic=True,
    ),
    OpSpec(
        Op.SCATTER,
        3,
        rules.SCATTER,
        rules.SCATTER_DTYPE,
        "Write by coordinates: inputs (dest, i_0 .. i_{m-1}, src), src of shape I + dest.shape[m:]. A copy "
        "of dest in which out[i_0[idx], .., i_{m-1}[idx], rest] = src[idx, rest]. A coordinate outside its "
        "axis (negative ones too) drops the write: that is how padding is spelled. Of several writes to one "
        "place any one wins; the reference interpreter keeps the last in row-major order.",
        meaning.scatter,
        is_variadic=True,
    ),
    OpSpec(
        Op.CAST,
        1,
        rules.SAME,
        rules.ANY_CAST,
        "Convert to the node's dtype. To a float: nearest, ties to even (i32 to a half float goes through "
        "f32). Float to i32 truncates; NaN and values outside i32 give -2^31. To bool: x != 0, so NaN is "
        "true. From bool: 0 or 1.",
        meaning.cast,
    ),
    OpSpec(
        Op.IOTA, 0, rules.ONE_AXIS, rules.I32_RESULT, "0, 1, .., n-1 along its one axis, i32.", meaning.iota
    ),
)

COMPOSITES: Mapping[Op, OpSpec] = _table(
    OpSpec(
        Op.SELECT,
        3,
        rules.SAME,
        rules.SELECT_DTYPE,
        "y where the bool c is true, else z; inputs (c, y, z). Bits pass through: a NaN on the side not "
        "taken has no effect, which no product with 0 or 1 can promise.",
        meaning.select,
    ),
    OpSpec(
        Op.DIV,
        2,
        rules.SAME,
        rules.FLOAT,
        "x / y with one rounding, as IEEE 754 divides; x * recip(y) rounds twice.",
        meaning.div,
    ),
    OpSpec(
        Op.FLOOR_DIV,
        2,
        rules.SAME,
        rules.INTEGER,
        "Quotient of i32 rounded towards -inf (Python's //); -2^31 // -1 wraps to -2^31. Dividing by zero is "
        "an error.",
        meaning.floor_div,
    ),
)


@dataclass(frozen=True, slots=True)
class Structure:
    """A leaf or a view: it computes nothing, it names or rearranges elements."""

    op: Op
    arity: int
    shape: rules.ShapeRule
    dtype: rules.DTypeRule
    attr: str
    meaning: str
    is_variadic: bool = False


LEAVES: Mapping[Op, Structure] = {
    row.op: row
    for row in (
        Structure(Op.INPUT, 0, rules.DECLARED, rules.DECLARED_DTYPE, "name", "A tensor given at each call."),
        Structure(
            Op.WEIGHT, 0, rules.DECLARED, rules.DECLARED_DTYPE, "name", "A tensor fixed when compiled."
        ),
        Structure(
            Op.CONST,
            0,
            rules.SCALAR,
            rules.DECLARED_DTYPE,
            "value",
            "A scalar, a value of its dtype; kept apart by bits, so 0.0 and -0.0 differ.",
        ),
    )
}

VIEWS: Mapping[Op, Structure] = {
    row.op: row
    for row in (
        Structure(
            Op.PERMUTE, 1, rules.PERMUTE, rules.SAME_DTYPE, "axes", "Reorder axes, as numpy.transpose does."
        ),
        Structure(
            Op.EXPAND,
            1,
            rules.EXPAND,
            rules.SAME_DTYPE,
            "position",
            "Insert one axis that repeats the operand.",
        ),
        Structure(
            Op.RESHAPE, 1, rules.RESHAPE, rules.SAME_DTYPE, "none", "The same elements in row-major order."
        ),
        Structure(
            Op.SLICE,
            1,
            rules.SLICE,
            rules.SAME_DTYPE,
            "(axis, start, step)",
            "Every step-th element from start on one axis; the shape says how many; step >= 1.",
        ),
    )
}

SPECS: Mapping[Op, OpSpec | Structure] = {**PRIMITIVES, **COMPOSITES, **LEAVES, **VIEWS}
REDUCTIONS = frozenset({Op.SUM, Op.MAX})
ELEMENTWISE = frozenset(op for op, spec in {**PRIMITIVES, **COMPOSITES}.items() if spec.shape is rules.SAME)
