"""What each rewrite of terms and indices claims, computed on random numbers, sizes and types.

A check yields, for some cases at a time, what was compared and whether each case agrees. It knows the
function that rewrites only by its result; the other side is NumPy or the graph's own interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from compiler.egraph.saturate import is_countable
from compiler.frontend import Trace
from compiler.ir import DType, Graph, GraphBuilder, Node, Op, Size, bind, evaluate, symbol
from compiler.ir.dtype import bf16_to_f32, round_to_bf16
from compiler.lower import terms as t
from compiler.lower.canonical import canonicalize
from compiler.lower.definitions import define
from compiler.lower.errors import LoweringError
from compiler.lower.first import first_along
from compiler.lower.index_terms import Lowering
from compiler.lower.indexing import add_index, const_index, divide, index_term, linear, scale_index
from compiler.lower.interpret import interpret
from compiler.lower.recombine import recombined_term
from compiler.lower.terms import Kind, Term
from compiler.search.arrange import describe_buffers
from compiler.search.inputs import InputSet, make_inputs
from tests.support.chained import run_chained
from tests.support.programs import graph_of
from tests.support.random_values import same_bits, values

Array: TypeAlias = npt.NDArray[Any]
Found: TypeAlias = Iterator[tuple[str, Array]]
Check: TypeAlias = Callable[[np.random.Generator], Found]

ROWS = 36
FLOATS = (DType.F32, DType.BF16, DType.F16)
N = symbol("N", 1, 8)


def at(term: Term, axes: Mapping[str, Size], buffers: Mapping[str, Array], n: int = 1) -> Array:
    """A term over `axes`, as a plain float32 program computes it."""
    return interpret(term, list(axes), axes, buffers, {"N": n}, np.float32)


def column(name: str, dtype: DType = DType.F32) -> Term:
    return t.load(name, [t.idx("i")], dtype)


def stored(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Random values in storage form."""
    count = int(np.prod(shape))
    if dtype is DType.I32:
        picked = rng.choice([0, 1, -1, 7, -300, 2**24, 2**24 + 1, -(2**24) - 1], count)
        return picked.astype(np.int32).reshape(shape)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    wide = values(rng, 9, max(-(-count // 9), 1)).reshape(-1)[:count].reshape(shape)
    with np.errstate(over="ignore"):
        return round_to_bf16(wide) if dtype is DType.BF16 else wide.astype(_numpy(dtype))


def widened(x: Array, dtype: DType) -> Array:
    return bf16_to_f32(x) if dtype is DType.BF16 else x


def _numpy(dtype: DType) -> npt.DTypeLike:
    return np.float16 if dtype is DType.F16 else np.float32


# Constructors


def times_one(rng: np.random.Generator) -> Found:
    for c in (1.0, -1.0, 0.0, -0.0, 2.0, 0.5, np.inf, np.nan):
        x = values(rng, ROWS, 1)[:, 0]
        one = t.num(c, DType.F32)
        for made in (t.mul(one, column("x")), t.mul(column("x"), one)):
            with np.errstate(all="ignore"):
                yield f"{c} * x", same_bits(at(made, {"i": ROWS}, {"x": x}), np.float32(c) * x)


def logarithm_of_condition(rng: np.random.Generator) -> Found:
    ufuncs = {Kind.LOG2: np.log2, Kind.EXP2: np.exp2, Kind.SQRT: np.sqrt}
    for kind, ufunc in ufuncs.items():
        for dtype in (DType.BOOL, DType.BF16, DType.F16, DType.I32):
            s = stored(rng, dtype, (ROWS,))
            with np.errstate(all="ignore"):
                wanted = ufunc(widened(s, dtype).astype(np.float32))
            made = t.unary(kind, t.cast_to(column("s", dtype), DType.F32))
            yield f"{kind} of {dtype}", same_bits(at(made, {"i": ROWS}, {"s": s}), wanted)
        x, y = values(rng, ROWS, 2).T
        c = rng.integers(0, 2, ROWS).astype(np.bool_)
        chosen = t.select(column("c", DType.BOOL), column("x"), column("y"))
        with np.errstate(all="ignore"):
            wanted = ufunc(np.where(c, x, y))
        made = t.unary(kind, chosen)
        yield f"{kind} of a choice", same_bits(at(made, {"i": ROWS}, {"x": x, "y": y, "c": c}), wanted)


def known_choice(rng: np.random.Generator) -> Found:
    x, y = values(rng, 3 * ROWS, 2).T
    less = t.binary(Kind.LT, column("x"), column("y"))
    for cond, truth in ((t.num(True, DType.BOOL), True), (t.num(False, DType.BOOL), False), (less, x < y)):
        found = at(t.select(cond, column("x"), column("y")), {"i": 3 * ROWS}, {"x": x, "y": y})
        yield f"select({cond})", same_bits(found, np.where(truth, x, y))


def narrow_again(rng: np.random.Generator) -> Found:
    def to(x: Array, dtype: DType) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            match dtype:
                case DType.BF16:
                    return bf16_to_f32(round_to_bf16(x.astype(np.float32)))
                case DType.F16:
                    return x.astype(np.float32).astype(np.float16).astype(np.float32)
                case DType.I32:
                    return np.trunc(x).astype(np.int64)
                case DType.BOOL:
                    return x != 0
                case _:
                    return x.astype(np.float32)

    for first in (*FLOATS, DType.I32, DType.BOOL):
        s = stored(rng, first, (ROWS,))
        wide = widened(s, first)
        if first in FLOATS:  # an integer of what is not finite has no value
            kept = np.isfinite(wide) & (np.abs(wide.astype(np.float64)) < 2**30)
            s, wide = np.where(kept, s, 0).astype(s.dtype), np.where(kept, wide, 0)
        for second in (*FLOATS, DType.I32):
            for third in (*FLOATS, DType.I32):
                made = t.cast_to(t.cast_to(column("s", first), second), third)
                found = at(made, {"i": ROWS}, {"s": s})
                wanted = to(to(wide, second), third)
                yield f"{first} to {second} to {third}", found.astype(np.float64) == wanted


def shared_axis_name(rng: np.random.Generator) -> Found:
    for n in (1, 2, 3, 5, 8):
        trace = Trace()
        a, v = trace.input("a", (4 * ROWS, N, N), DType.F32), trace.input("v", (N,), DType.F32)
        nested = (a.max(2) * v).sum(1) + (a * v).sum(2).max(1)
        graph = trace.finish({"out": nested})
        given = {"a": rng.integers(-9, 9, (4 * ROWS, n, n)), "v": rng.integers(-9, 9, (n,))}
        found = run_chained(graph, {k: x.astype(np.float64) for k, x in given.items()})["out"]
        inner = (given["a"] * given["v"]).sum(2).max(1)
        yield f"N={n}", found == (given["a"].max(2) * given["v"]).sum(1) + inner


def count_of_axis(rng: np.random.Generator) -> Found:
    """Sums and maxima of constants, and of what is none, as the graph's interpreter has them."""
    integers = [(v, DType.I32) for v in (0, 1, -1, 3, -7, 2**28, 2**30, -(2**30))]
    for value, dtype in (*integers, (1.5, DType.F32)):
        for op in (Op.SUM, Op.MAX):
            for case in range(13):
                builder = GraphBuilder()
                size, n = (N if case % 2 else int(rng.integers(1, 5))), int(rng.integers(1, 9))
                x = builder.node(Op.EXPAND, (builder.const(value, dtype),), 0, shape=(size,))
                if case % 5 == 4 and dtype is DType.I32:
                    x = builder.node(Op.IOTA, (), shape=(size,), dtype=dtype)
                node = builder.node(op, (builder.node(Op.EXPAND, (x,), 0, shape=(2, size)),), 1)
                lowering = Lowering({}, {"a0": 2})
                term = lowering.lower(node, (t.idx("a0"),))
                found = interpret(term, ["a0"], lowering.extents, {}, {"N": n}, np.float32)
                wanted = evaluate(Graph({"out": node}), {}, dims={"N": n})["out"]
                is_right = term.kind in (Kind.SUM, Kind.MAX) or np.array_equal(found, wanted)
                yield f"{op} of {value} over {size}", np.array([is_right])


def canonical_names(rng: np.random.Generator) -> Found:
    for name in ("causal_attention", "rms_normed_product", "quotient"):
        graph = graph_of(name)
        definitions = define(graph)
        for d in definitions:
            c = canonicalize(d, describe_buffers(graph, definitions))
            dims = {"T": 2 * ROWS, "S": 5}
            inputs = make_inputs(c.canonical, dims, InputSet.UNIT, int(rng.integers(99)))
            named = {old: inputs[new] for new, old in c.arguments.items()}
            before = interpret(d.term, d.axes, d.extents, named, dims, np.float32)
            after = interpret(
                c.canonical.term, c.canonical.axes, c.canonical.extents, inputs, dims, np.float32
            )
            yield name, same_bits(before, after).reshape(2 * ROWS, -1).all(1)


# Views and gathers, each against the graph's own interpreter


def _lowered(node: Node, value: Mapping[str, Array], n: int) -> tuple[Array, Array]:
    names = [f"a{d}" for d in range(len(node.shape))]
    lowering = Lowering({}, dict(zip(names, node.shape, strict=True)))
    term = lowering.lower(node, tuple(t.idx(a) for a in names))
    found = interpret(
        term, names, lowering.extents, {f"in:{k}": x for k, x in value.items()}, {"N": n}, np.float32
    )
    wanted = evaluate(Graph({"out": node}), dict(value), dims={"N": n})["out"]
    return found, widened(wanted, node.dtype)


def _viewed(op: Op, sizes: tuple[Size, ...]) -> Check:
    def check(rng: np.random.Generator) -> Found:
        for case in range(200):
            n = int(rng.choice([1, 2, 3, 5]))
            dtype = (*FLOATS, DType.I32, DType.BOOL)[case % 5]
            shape = tuple(sizes[int(i)] for i in rng.integers(len(sizes), size=int(rng.integers(1, 4))))
            builder = GraphBuilder()
            x = builder.input("x", shape, dtype)
            node = _view(rng, builder, op, x)
            value = stored(rng, dtype, tuple(bind(s, {"N": n}) for s in shape))
            found, wanted = _lowered(node, {"x": value}, n)
            is_equal = found.shape == wanted.shape and bool(same_bits(found, wanted).all())
            yield f"{op} of {shape} to {node.shape}", np.array([is_equal])

    return check


def _view(rng: np.random.Generator, builder: GraphBuilder, op: Op, x: Node) -> Node:
    rank = len(x.shape)
    if op is Op.PERMUTE:
        return builder.node(op, (x,), tuple(int(i) for i in rng.permutation(rank)))
    if op is Op.EXPAND:
        at = int(rng.integers(rank + 1))
        return builder.node(op, (x,), at, shape=(*x.shape[:at], int(rng.integers(4)), *x.shape[at:]))
    if op is Op.SLICE:
        axis = int(rng.integers(rank))
        extent = cast(int, x.shape[axis])
        start, step = int(rng.integers(extent + 1)), int(rng.integers(1, 4))
        length = max(-(-(extent - start) // step), 0)
        shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
        return builder.node(op, (x,), (axis, start, step), shape=shape)
    merged = list(x.shape)
    while len(merged) > 1 and rng.random() < 0.6:
        i = int(rng.integers(len(merged) - 1))
        merged[i : i + 2] = [merged[i] * merged[i + 1]]
    for i in range(len(merged) - 1, -1, -1):
        size = merged[i]
        if isinstance(size, int) and size > 1 and rng.random() < 0.7:
            factor = int(rng.choice([f for f in range(1, size + 1) if size % f == 0]))
            merged[i : i + 1] = [factor, size // factor]
    return builder.node(op, (x,), shape=tuple(merged))


def split_multiples(rng: np.random.Generator) -> Found:
    extents: dict[str, Size] = {"i": 7, "j": 5, "l": N}
    for _ in range(250):
        n = int(rng.integers(1, 9))
        index, low = const_index(int(rng.integers(9))), 0
        for a in extents:
            if rng.random() < 0.7:
                c = int(rng.choice([1, 2, 3, 4, 6, 8, 12, -1, -2]))
                index = add_index(index, scale_index(t.idx(a), c))
                low += min(c, 0) * 9
        index = add_index(index, const_index(-low))  # an index is never negative
        divisor: Size = int(rng.integers(1, 13)) if rng.random() < 0.8 else N
        q, r = divide(index, divisor, extents)
        whole, quotient, rest = (at(x, extents, {}, n) for x in (index, q, r))
        by = bind(divisor, {"N": n})
        is_equal = (quotient == whole // by) & (rest == whole % by)
        yield f"{index} by {divisor}", np.array([is_equal.all()])


def remainder_of_index(rng: np.random.Generator) -> Found:
    for _ in range(220):
        builder = GraphBuilder()
        size = int(rng.integers(0, 8))
        iota = builder.node(Op.IOTA, (), shape=(size,), dtype=DType.I32)

        def constant(value: int, builder: GraphBuilder = builder, size: int = size) -> Node:
            return builder.node(Op.EXPAND, (builder.const(value, DType.I32),), 0, shape=(size,))

        scaled = builder.node(Op.MUL, (iota, constant(int(rng.choice([1, 2, 3, -1])))))
        moved = builder.node(Op.ADD, (scaled, constant(int(rng.integers(-6, 9)))))
        divisor = int(rng.choice([-4, -3, -1, 1, 2, 3, 5, 7]))
        node = builder.node(Op.MOD, (moved, constant(divisor)))
        found, wanted = _lowered(node, {}, 1)
        yield f"remainder by {divisor}", np.array([np.array_equal(found, wanted)])


def recombine(rng: np.random.Generator) -> Found:
    axes: dict[str, Size] = {"i": 11, "j": 4}
    for _ in range(250):
        x = add_index(t.idx("i"), const_index(int(rng.integers(3))))
        y = t.idx("j")
        n: Term = t.load("d", [], DType.I32) if rng.random() < 0.3 else const_index(int(rng.integers(2, 4)))
        c, factor = int(rng.integers(1, 3)), int(rng.integers(1, 7))
        over = x if rng.random() < 0.7 else y
        kinds = [Kind.FLOOR_DIV, Kind.MOD, Kind.FLOOR_MOD]
        first = t.make(kinds[int(rng.integers(3))], (over, n), DType.I32)
        last = t.make(Kind.FLOOR_MOD if rng.random() < 0.8 else Kind.MOD, (x, n), DType.I32)
        index = add_index(scale_index(first, c * factor), scale_index(last, c))
        if rng.random() < 0.5:
            index = add_index(index, scale_index(t.make(Kind.FLOOR_DIV, (x, n), DType.I32), factor))
        index = index_term(linear(add_index(index, scale_index(y, int(rng.integers(3))))))
        before, after = (at(z, axes, {"d": np.array(3)}) for z in (index, recombined_term(index)))
        yield f"{index}", np.array([np.array_equal(before, after)])


def one_point_axis(rng: np.random.Generator) -> Found:
    for rows in (0, 1, 2, 3, 40):
        for columns in (1, 2, 3):
            trace = Trace()
            x = trace.input("x", (rows, columns), DType.F32)
            given = {"x": values(rng, max(rows, 1), columns)[:rows].astype(np.float64)}
            graph = trace.finish({"out": x + 1.0})
            found = run_chained(graph, given)["out"]
            yield f"{rows} x {columns}", same_bits(found, given["x"] + 1.0).reshape(-1)


def first_value(rng: np.random.Generator) -> Found:
    i, k = t.idx("i"), t.idx("k")
    half = t.make(Kind.FLOOR_DIV, (k, const_index(2)), DType.I32)
    x, y = t.load("x", [i, k], DType.F32), t.load("y", [k], DType.F32)
    picked = t.load("y", [t.load("p", [half], DType.I32)], DType.F32)
    total = t.reduction(Kind.SUM, "k", x)
    early = t.binary(Kind.LT, add_index(k, i), const_index(5))
    for n in (1, 2, 5):
        given = {"x": values(rng, ROWS, n), "y": values(rng, 1, n)[0], "p": rng.integers(0, n, n)}
        for term in (t.mul(x, y), t.add(x, picked), t.add(x, t.negate(total)), t.select(early, x, y), total):
            wanted = at(term, {"i": ROWS, "k": n}, given)[:, 0]
            found = interpret(first_along(term, "k"), ["i"], {"i": ROWS, "k": n}, given, {}, np.float32)
            yield f"{term}", same_bits(found, wanted)
    for low, high in ((0, 0), (1, 1), (0, 3), (1, 8), (5, 2**24), (2**24 + 1, 2**24 + 1), (1, 2**25)):
        extent: Size = low if low == high else symbol("E", low, high)
        sizes = [m for m in (low, low + 1, 2**24 - 1, 2**24 + 1, high) if low <= m <= high]
        is_right = all(m >= 1 and int(np.float32(m)) == m for m in sizes)
        yield f"count of {extent}", np.array([is_right or not is_countable(extent)])


def gather(rng: np.random.Generator) -> Found:
    for case in range(200):
        builder = GraphBuilder()
        shape = tuple(int(s) for s in rng.choice([1, 2, 3, 5], 2))
        dtype = (*FLOATS, DType.I32, DType.BOOL)[case % 5]
        count, rank = int(rng.choice([0, 1, 2, 7])), int(rng.integers(1, 3))
        names = ["p", "q"][:rank]
        coordinates = [builder.input(name, (count,), DType.I32) for name in names]
        node = builder.node(Op.GATHER, (builder.input("x", shape, dtype), *coordinates))
        given = {name: rng.integers(0, shape[d], count).astype(np.int32) for d, name in enumerate(names)}
        given["x"] = stored(rng, dtype, shape)
        found, wanted = _lowered(node, given, 1)
        yield f"{count} of {shape}", np.array([bool(same_bits(found, wanted).all())])


def scatter_in_place(rng: np.random.Generator) -> Found:
    """A graph that is accepted computes what its interpreter does, whoever else reads the destination."""

    def graphs() -> Iterator[tuple[str, Graph]]:
        for name in ("alone", "old value read", "view read", "computed", "twice"):
            for is_first in (False, True):
                trace = Trace()
                cache, x = trace.input("cache", (6, 3), DType.F32), trace.input("x", (4, 3), DType.F32)
                slots = trace.input("slots", (4,), DType.I32)
                view = cache.permute(1, 0).permute(1, 0) if name == "alone" else cache[:, :]
                view = view.permute(1, 0) if name == "view read" else view
                base = {"computed": cache * 2.0, "view read": view.permute(1, 0)}.get(name, cache)
                made = base.scatter((slots,), x)
                made = made.scatter((slots,), x * 2.0) if name == "twice" else made
                other = {"old value read": cache * 3.0, "view read": view * 3.0}.get(name, x * 3.0)
                both = {"other": other, "cache": made}
                yield (
                    name,
                    trace.finish(both if is_first else dict(reversed(both.items())), {"cache": "cache"}),
                )

    for name, graph in graphs():
        for _ in range(20):
            given = {"cache": rng.standard_normal((6, 3)), "x": rng.standard_normal((4, 3))}
            given["slots"] = rng.permutation(9)[:4].astype(np.int32) - 1
            try:
                found = run_chained(graph, given)
            except LoweringError:
                yield f"{name} is refused", np.array([name not in ("alone", "twice")])
                continue
            wanted = evaluate(graph, given, precise=True)
            yield name, np.array([all(np.allclose(found[k], wanted[k]) for k in wanted)])


CHECKS: Mapping[str, Check] = {
    "times-one": times_one,
    "logarithm-of-condition": logarithm_of_condition,
    "known-choice": known_choice,
    "narrow-again": narrow_again,
    "shared-axis-name": shared_axis_name,
    "canonical-names": canonical_names,
    "count-of-axis": count_of_axis,
    "permute": _viewed(Op.PERMUTE, (0, 1, 2, 3, 5, N)),
    "expand": _viewed(Op.EXPAND, (0, 1, 2, 3, 5, N)),
    "slice": _viewed(Op.SLICE, (0, 1, 2, 3, 5, 7)),
    "reshape": _viewed(Op.RESHAPE, (1, 2, 3, 4, 6, N)),
    "split-multiples": split_multiples,
    "remainder-of-index": remainder_of_index,
    "recombine": recombine,
    "one-point-axis": one_point_axis,
    "first-value": first_value,
    "gather": gather,
    "scatter-in-place": scatter_in_place,
}
