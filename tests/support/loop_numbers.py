"""What each rewrite of loops, products, layouts and precision claims, computed; see `rewrite_numbers`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product as pairs
from typing import Any

import numpy as np

from compiler.artifact.layouts import WeightLayout
from compiler.codegen.layout import pack, unpack
from compiler.frontend import Tensor, Trace
from compiler.ir import DType, evaluate
from compiler.ir.dtype import bf16_to_f32, round_to_bf16
from compiler.lower import terms as t
from compiler.lower.bounds import StreamBounds, assume, derive
from compiler.lower.contraction import contraction, strides_in_tile
from compiler.lower.indexing import add_index, const_index, flatten, scale_index
from compiler.lower.interpret import interpret
from compiler.lower.online import correction
from compiler.lower.precision import narrow_operands
from compiler.lower.terms import Kind, Term
from compiler.search.inputs import InputSet, make_inputs
from tests.support.chosen import chosen, definition_of, row_kernel
from tests.support.random_values import values
from tests.support.rewrite_numbers import Array, Check, Found, N
from tests.support.tile_machine import TileMachine

_BUDGET = 2.0**-21


def _pick(rng: np.random.Generator, of: list[Any]) -> Any:
    return of[int(rng.integers(len(of)))]


# Products


def two_groups(rng: np.random.Generator) -> Found:
    """The two operands alone, each over its own axes, give the sum of the whole product."""
    sizes = {"m": 3, "n": 4, "p": 2, "k": 5}
    found = 0
    while found < 200:
        factors, given = [], {}
        for number in range(int(rng.integers(2, 5))):
            axes = [a for a in sizes if rng.random() < (0.75 if a == "k" else 0.4 if a != "p" else 0.15)]
            dtype = DType.F32 if rng.random() < 0.97 else DType.I32
            factors.append(t.load(f"x{number}", [t.idx(a) for a in axes], dtype))
            given[f"x{number}"] = rng.standard_normal([sizes[a] for a in axes]) * 3
        if len({f.dtype for f in factors}) > 1:
            factors = [t.load(str(f.attr), f.args, DType.I32) for f in factors]
        body = factors[0]
        for f in factors[1:]:
            body = t.make(Kind.MUL, (body, f), f.dtype)
        kind = Kind.SUM if rng.random() < 0.9 else Kind.MAX
        term = t.make(kind, (body,), body.dtype, "k")
        tile = [a for a in rng.permutation(["m", "n", "p"]) if a in term.free]
        split = contraction(term, tile)
        found += 1
        if split is None:
            yield "no product", np.array([True])
            continue
        rows = [a for a in (split.m,) if a is not None]
        fits = split.a.free == {*rows, "k"} and split.b.free == {split.n, "k"} and split.a.dtype is DType.F32
        yield f"operands of {term}", np.array([fits])
        if not fits:
            return
        a = interpret(split.a, [*rows, "k"], sizes, given, {})
        b = interpret(split.b, ["k", split.n], sizes, given, {})
        whole = interpret(term, [*rows, split.n], sizes, given, {})
        yield f"{term}", np.array([np.allclose(a @ b, whole, rtol=1e-9, atol=1e-9)])


# Cascaded reductions

_X = t.load("x", [t.idx("k")], DType.F32)
_MAX = t.reduction(Kind.MAX, "k", _X)
_TOTAL = t.reduction(Kind.SUM, "k", t.mul(_X, _X))


def running_correction(rng: np.random.Generator) -> Found:
    rows = 240
    names = ("new_max", "new_total", "old_max", "old_total", "c")
    given = {name: rng.uniform(0.5, 2.0, rows) for name in names}
    row = {name: t.load(name, [t.idx("i")], DType.F32) for name in names}
    new, before = {_MAX: row["new_max"], _TOTAL: row["new_total"]}, {
        _MAX: row["old_max"], _TOTAL: row["old_total"]
    }  # fmt: skip
    both = new | {t.old(_MAX): row["old_max"], t.old(_TOTAL): row["old_total"]}

    def at(term: Term, held: Mapping[Term, Term], values_of: Mapping[str, Array]) -> Array:
        return interpret(t.substitute(term, held), ["i"], {"i": rows}, values_of, {}, np.float32)

    down, half = t.negate(_MAX), t.num(0.5, DType.F32)
    exponents = [
        down,
        t.mul(down, half),
        t.add(down, row["c"]),
        t.add(t.mul(half, _MAX), _TOTAL),
        t.mul(_MAX, _TOTAL),
        t.mul(half, t.unary(Kind.LOG2, _TOTAL)),
        t.add(row["c"], t.mul(_TOTAL, row["c"])),
        row["c"],
    ]
    factors = [t.exp2(x) for x in exponents]
    factors += [t.recip(t.exp2(down)), t.mul(t.exp2(down), t.recip(_TOTAL)), t.unary(Kind.SQRT, _TOTAL)]
    for factor in factors:
        found = at(correction(factor, [_MAX, _TOTAL]), both, given)
        wanted = at(factor, new, given) / at(factor, before, given)
        yield f"{factor}", np.abs(found - wanted) <= 1e-4 * np.abs(wanted)
    high = {name: x + (3000.0 if name.endswith("max") else 0.0) for name, x in given.items()}
    for x in (down, t.mul(down, half), t.add(down, row["c"])):
        found = at(correction(t.exp2(x), [_MAX, _TOTAL]), both, high)
        yield f"exp2({x}) of thousands", np.isfinite(found) & (found > 0)


def same_pass(rng: np.random.Generator) -> Found:
    """A tile program for a form gives what the definition gives; rows are cases."""
    for name, kind in pairs(("weighted_mean", "scaled_softmax"), (InputSet.UNIT, InputSet.LARGE)):
        for n in (1, 9):
            d, dims = definition_of(name), {"T": 60, "S": n}
            inputs = make_inputs(d, dims, kind, int(rng.integers(99)))
            exact = interpret(d.term, d.axes, d.extents, inputs, dims)
            for form in (d, chosen(name)):
                with np.errstate(all="ignore"):
                    written = TileMachine(row_kernel(form, 4), inputs, dims).run()
                error = np.abs(written - exact).reshape(60, -1).max(1)
                yield f"{name}, {kind}, {n}", error <= 1e-4 * np.abs(exact).max()


# Bounds


def _index_masks() -> list[Term]:
    i, k, p = t.idx("i"), t.idx("k"), t.load("p", [t.idx("i")], DType.I32)
    ends = [
        add_index(i, const_index(1)),
        p,
        const_index(3),
        add_index(k, const_index(-1)),
        t.load("q", [k], DType.I32),
    ]
    after = [t.binary(Kind.LT, k, end) for end in ends] + [t.binary(Kind.LT, scale_index(k, 2), p)]
    starts = [
        add_index(i, const_index(-3)),
        p,
        const_index(1),
        scale_index(k, 2),
        t.load("q", [k], DType.I32),
    ]
    before = [t.binary(Kind.LT, start, k) for start in starts]
    before.append(t.binary(Kind.LT, p, scale_index(k, 2)))
    return [*after, *before, t.binary(Kind.LT, i, const_index(3))]


def _bodies(c: Term, d: Term) -> list[tuple[Term, Kind]]:
    """Bodies masked by `c` and partly by `d`, of which only some turn to their identity."""
    i, k = t.idx("i"), t.idx("k")
    x, y, z = (t.load(n, [i, k], DType.F32) for n in "xyz")
    zero, two, down = (t.num(v, DType.F32) for v in (0.0, 2.0, -1.0))
    hidden = t.num(float("-inf"), DType.F32)
    mask, other = t.select(c, zero, hidden), t.select(d, zero, hidden)
    less, square = t.binary(Kind.LT, x, y), t.add(t.mul(z, z), two)
    seen = t.cast_to(c, DType.F32)
    both = t.select(c, d, t.num(False, DType.BOOL))
    position = t.cast_to(k, DType.F32)
    sums = [
        t.mul(x, seen),
        t.exp2(t.add(x, mask)),
        t.mul(y, t.exp2(t.add(t.add(x, mask), other))),
        x,
        t.binary(Kind.DIV, t.select(c, x, zero), square),
        t.select(c, x, zero),
        t.select(both, x, zero),
        t.mul(x, t.exp2(t.add(t.select(both, zero, hidden), y))),
        t.add(x, mask),
        t.mul(x, t.select(c, y, two)),
        t.exp2(t.select(c, x, y)),
        t.select(less, t.select(c, x, zero), y),
        t.mul(position, t.add(x, seen)),
        t.select(less, y, t.select(c, x, zero)),
        t.binary(Kind.DIV, t.select(c, x, y), square),
        t.select(less, t.select(c, x, zero), t.select(c, y, zero)),
        t.select(less, x, t.mul(seen, y)),
    ]
    maxima = [
        t.add(x, mask),
        t.add(t.add(x, mask), other),
        t.mul(t.add(x, mask), two),
        t.mul(t.add(x, mask), down),
        t.mul(mask, y),
        t.unary(Kind.LOG2, t.mul(seen, square)),
        t.unary(Kind.LOG2, t.select(c, square, two)),
        t.add(t.select(c, x, y), z),
        t.mul(x, seen),
        t.select(less, t.add(x, mask), mask),
    ]
    return [(b, Kind.SUM) for b in sums] + [(b, Kind.MAX) for b in maxima]


def _loops(rng: np.random.Generator) -> Iterator[tuple[list[tuple[Term, Kind]], frozenset[str]]]:
    masks = _index_masks()
    for c in masks:
        d = _pick(rng, masks)
        for number, body in enumerate(_bodies(c, d)):
            if number % 4 == 0:
                yield [body, _pick(rng, _bodies(c, d))], frozenset()
            yield [body], frozenset({"i"} if number % 5 == 4 else ())


def _bounded(rng: np.random.Generator) -> Iterator[tuple[StreamBounds, str, Array]]:
    """Reductions inside their bounds, the proven conditions taken as true, beside the whole ones."""
    rows = 6
    for bodies, tiled in _loops(rng):
        bounds = derive("k", bodies, tiled)
        ends = [b for b in (bounds.lower, bounds.upper) if b is not None]
        yield (
            bounds,
            f"bounds {ends} of one value",
            np.array([not any(b.free & (tiled | {"k"}) for b in ends)]),
        )
        if any("k" in b.free for b in ends):
            return
        for n in (0, 1, 5, 8):
            axes = {"i": rows, "k": n}
            given: dict[str, Array] = {name: rng.standard_normal((rows, n)) for name in "xyz"}
            given |= {"p": rng.integers(0, n + 2, rows), "q": rng.integers(0, n + 2, n)}

            def at(term: Term, axes: dict[str, int] = axes, given: dict[str, Array] = given) -> Array:
                return interpret(term, list(axes), axes, given, {})

            k = np.arange(n)[None, :]
            inside = np.ones((rows, n), dtype=bool)
            inside &= True if bounds.lower is None else k >= at(bounds.lower)
            inside &= True if bounds.upper is None else k < at(bounds.upper)
            for body, kind in bodies:
                whole, part = at(body), at(assume(body, bounds.proven, []))
                with np.errstate(all="ignore"):
                    if kind is Kind.MAX:
                        before = whole.max(1, initial=-np.inf)
                        after = np.where(inside, part, -np.inf).max(1, initial=-np.inf)
                    else:
                        before, after = whole.sum(1), np.where(inside, part, 0.0).sum(1)
                    near = np.abs(before - after) <= 1e-9 * (1 + np.abs(before))
                    near = (before == after) | (near & np.isfinite(before))
                yield bounds, f"{kind} of {body} up to {bounds.upper}", near | np.isnan(before)


def loop_upper_bound(rng: np.random.Generator) -> Found:
    yield from ((what, right) for _, what, right in _bounded(rng))


def loop_lower_bound(rng: np.random.Generator) -> Found:
    """As above, judged where a lower bound was found."""
    yield from ((what, right) for bounds, what, right in _bounded(rng) if bounds.lower is not None)


# Layouts


def _tile_indices() -> list[Term]:
    m, n = t.idx("m"), t.idx("n")
    out: list[Term] = [m, n, add_index(m, const_index(1)), scale_index(m, 2), add_index(m, n)]
    for axis, divisor in pairs((m, n), (2, 4, 8, 3)):
        for kind in (Kind.FLOOR_DIV, Kind.FLOOR_MOD):
            out.append(t.make(kind, (axis, const_index(divisor)), DType.I32))
    out.append(t.make(Kind.FLOOR_DIV, (add_index(m, const_index(1)), const_index(4)), DType.I32))
    out.append(t.make(Kind.FLOOR_MOD, (add_index(m, const_index(1)), const_index(4)), DType.I32))
    out.append(t.make(Kind.MOD, (m, const_index(4)), DType.I32))
    out.append(t.load("one", [t.make(Kind.FLOOR_DIV, (m, const_index(4)), DType.I32)], DType.I32))
    out.append(t.load("one", [m], DType.I32))
    out.append(t.load("one", [add_index(scale_index(out[9], 1), m)], DType.I32))
    out += [t.load("two", [m, x], DType.I32) for x in (n, const_index(8), const_index(4))]
    quarter = t.make(Kind.FLOOR_DIV, (n, const_index(4)), DType.I32)
    chosen_by_place = t.select(t.binary(Kind.LT, m, const_index(4)), m, n)
    return [*out, t.load("two", [quarter, const_index(8)], DType.I32), chosen_by_place]


def strides_in_a_tile(rng: np.random.Generator) -> Found:
    """From the first element of a tile, each other one lies where the strides say."""
    indices, size = _tile_indices(), 16
    given = {"one": rng.integers(0, 9, 2 * size), "two": rng.integers(0, 9, (size, size))}
    for case in range(300):
        first, second = (indices[case % len(indices)], _pick(rng, indices))
        load = t.load("x", [first, second] if case % 2 else [second, first], DType.F32)
        aligned = {a: int(_pick(rng, [1, 2, 4, 8])) for a in "mn" if rng.random() < 0.8}
        blocks = {"m": aligned.get("m", 4), "n": aligned.get("n", 4)}
        symbolic = rng.random() < 0.15
        shape = (64, N if symbolic else 64)
        strides = strides_in_tile(load, shape, ["m", "n"], aligned)
        if strides is None:
            yield f"{load} has none", np.array([True])
            continue
        position = interpret(flatten(load.args, shape), ["m", "n"], {"m": size, "n": size}, given, {"N": 7})
        m, n = np.arange(size)[:, None], np.arange(size)[None, :]
        own_m, own_n = m % blocks["m"], n % blocks["n"]
        if "m" not in aligned and "n" not in aligned:  # a tile may start anywhere: only one is looked at
            own_m, own_n = m, n
        start = position[m - own_m, n - own_n]
        found = start + own_m * strides["m"] + own_n * strides["n"]
        yield f"{load} in tiles of {aligned}", np.array([np.array_equal(found, position)])


def panels(rng: np.random.Generator) -> Found:
    for layout in WeightLayout:
        if layout is WeightLayout.ROW_MAJOR:
            continue
        is_wide = layout is WeightLayout.PACKED_F32_64
        for rows, k in pairs((1, 3, 64, 65), (1, 2, 31, 32, 33)):
            wide = values(rng, rows, k)
            matrix = wide if is_wide else round_to_bf16(wide)
            back = unpack(pack(matrix, layout), layout, (rows, k))
            bits = np.uint32 if is_wide else np.uint16
            yield f"{layout} of {rows} x {k}", (back.view(bits) == matrix.view(bits)).all(1)
            if not is_wide:
                rounded = unpack(pack(wide, layout), layout, (rows, k))
                yield f"{layout} of f32", (rounded == matrix).all(1)


# Precision


def narrow_the_operands(rng: np.random.Generator) -> Found:
    """What meets a bf16 matrix in a sum of products is rounded, in budget; nothing else is touched."""
    rows, width, columns = 24, 17, 5

    def summed(x: Tensor, w: Tensor, how: str) -> Tensor:
        wide = x.unsqueeze(1)
        if how == "kept":
            return wide * w
        both = {"divided": lambda: wide / (w * w + 1.0), "added": lambda: wide + w}.get(
            how, lambda: wide * w
        )()
        return both.max(2) if how == "largest" else both.sum(2)

    for how in (
        "product",
        "kept",
        "divided",
        "added",
        "largest",
        "f32",
        "input",
        "vector",
        "both",
        "rounded",
    ):
        trace = Trace()
        x = trace.input("x", (rows, width), DType.F32)
        dtype = DType.F32 if how == "f32" else DType.BF16
        shape = (width,) if how == "vector" else (columns, width)
        w = trace.input("w", shape, dtype) if how == "input" else trace.weight("w", shape, dtype)
        read = x.cast(DType.BF16).cast(DType.F32) if how == "rounded" else x
        made = summed(read, w.cast(DType.F32), how)
        if how == "both":
            made = (w.cast(DType.F32).unsqueeze(1) * w.cast(DType.F32)).sum(2)
        graph = trace.finish({"out": made})
        held = rng.standard_normal(shape).astype(np.float32)
        given = {"x": rng.standard_normal((rows, width)).astype(np.float32)}
        given["w"] = held if how == "f32" else round_to_bf16(held)
        given = {name: given[name] for name in (*graph.inputs, *graph.weights)}
        before, after = (evaluate(g, given)["out"] for g in (graph, narrow_operands(graph)))
        wanted = before
        if how in ("product", "rounded"):
            x16, w16 = bf16_to_f32(round_to_bf16(given["x"])), bf16_to_f32(given["w"])
            wanted = x16.astype(np.float64) @ w16.T.astype(np.float64)
            scale = np.abs(given["x"]).astype(np.float64) @ np.abs(w16).T
            yield f"{how} in budget", (np.abs(after - before) <= 2.0**-8 * scale).reshape(-1)
        yield how, (np.abs(after - wanted) <= 2e-6 * (1 + np.abs(wanted))).reshape(-1)


CHECKS: Mapping[str, Check] = {
    "two-groups": two_groups,
    "running-correction": running_correction,
    "same-pass": same_pass,
    "loop-upper-bound": loop_upper_bound,
    "loop-lower-bound": loop_lower_bound,
    "strides-in-tile": strides_in_a_tile,
    "panels": panels,
    "narrow-operands": narrow_the_operands,
}
