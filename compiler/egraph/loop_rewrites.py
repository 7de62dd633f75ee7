"""The rewrites of products, running reductions, loop bounds, layouts and precision, as data."""

from __future__ import annotations

from compiler.egraph.rule import Check, Family, Rewrite, Safety

_EXACT, _REASSOCIATES, _GATED = Safety.EXACT, Safety.REASSOCIATES, Safety.NEEDS_GATE
_BOUNDS, _GROUPS = "compiler.lower.bounds", "compiler.lower.contraction"
_PRECISION = "compiler.lower.precision"

CONTRACTION = (
    Rewrite(
        "two-groups",
        Family.CONTRACTION,
        _REASSOCIATES,
        "A sum of a product whose factors fall into two groups that share only k is a matrix product.",
        f"{_GROUPS}:contraction",
        "return Contraction(m, next(iter(axes)), k, a, b)",
        "gated_mlp",
        (
            Check("term.kind is Kind.MAX", dropped="False"),
            Check("term.dtype is not DType.F32", dropped="False"),
            Check("len(groups) > 2", dropped="False", weaker=("len(groups) > 3",)),
            Check("any((len(axes) != 1 for axes, _ in groups))", dropped="False"),
            Check("not lone", dropped="False"),
            Check("k not in a.free", dropped="False"),
            Check("k not in b.free", dropped="False"),
        ),
    ),
    Rewrite(
        "running-correction",
        Family.CASCADED,
        _GATED,
        "When running reductions move, a sum that their factor scales is rescaled by new over old.",
        "compiler.lower.online:correction",
        "return exp2(_delta(independent.args[0], running))",
        "softmax",
        (Check("not reads_any(independent, running)"),),
        (
            (
                "compiler.lower.online:_delta",
                (
                    Check("not reads_any(term, running)"),
                    Check("not reads_any(b, running)"),
                    Check("not reads_any(a, running)"),
                    Check("is_number(a, 0.0)"),
                    Check("is_number(b, 0.0)"),
                ),
            ),
        ),
    ),
    Rewrite(
        "same-pass",
        Family.CASCADED,
        _GATED,
        "A reduction runs beside those it reads only where it is rescaled when they move.",
        "compiler.lower.online:pass_levels",
        "levels[r] = max((levels[x] + (0 if x in covered else 1) for x in below), default=0)",
        "weighted_mean",
        (Check("x in covered"), Check("r.kind is Kind.ONLINE")),
    ),
)

BOUNDED = (
    Rewrite(
        "loop-upper-bound",
        Family.BOUNDED,
        _REASSOCIATES,
        "A loop ends where a condition turns every body to its identity from there on.",
        f"{_BOUNDS}:derive",
        "upper = b",
        "causal_attention",
        (
            Check("cond.kind is not Kind.LT", dropped="False"),
            Check(
                "all((_folds_to_identity(x, kind, cond) for x, kind in bodies))",
                weaker=("any((_folds_to_identity(x, kind, cond) for x, kind in bodies))",),
            ),
            Check("upper is None"),
            Check("_is_axis(a, axis)"),
            Check("axis not in b.free"),
            Check("not b.free & tiled"),
        ),
        (
            (f"{_BOUNDS}:_folds_to_identity", (Check("kind is Kind.MAX"),)),
            (f"{_BOUNDS}:_fold", (Check("yes == no"), Check("picked is None", dropped="False"))),
            (
                f"{_BOUNDS}:_arithmetic",
                (
                    Check("-_INF in values"),
                    Check("0.0 in values"),
                    Check("any((v is not None and v > 0 for v in values))"),
                    Check("values[0] == -_INF"),
                    Check("values[0] == 0.0"),
                ),
            ),
        ),
    ),
    Rewrite(
        "loop-lower-bound",
        Family.BOUNDED,
        _REASSOCIATES,
        "A loop starts where a condition stops turning every body to its identity.",
        f"{_BOUNDS}:derive",
        "lower = add_index(a, const_index(1))",
        "sliding_window_attention",
        (
            Check("_is_axis(b, axis)"),
            Check("axis not in a.free"),
            Check("not a.free & tiled"),
            Check("lower is None", harmless="either lower bound is one: both masks stay"),
        ),
    ),
)

LAYOUT = (
    Rewrite(
        "strides-in-tile",
        Family.LAYOUT,
        _EXACT,
        "A read that is affine inside a tile is read where it lies, by strides.",
        f"{_GROUPS}:strides_in_tile",
        "return strides",
        "paged_attention",
        (Check("step is None", dropped="False"), Check("not isinstance(c, int)", dropped="False")),
        (
            (
                f"{_GROUPS}:_step",
                (
                    Check("atom.kind is Kind.IDX"),
                    Check("is_plain"),
                    Check("isinstance(divisor, int)"),
                    Check("axis in aligned"),
                    Check("divisor % aligned[axis] == 0"),
                    Check("atom.kind is Kind.FLOOR_DIV"),
                    Check("atom.kind is Kind.FLOOR_MOD"),
                    Check("atom.kind is Kind.LOAD"),
                    Check("all((_index_is_constant(a, axis, aligned) for a in atom.args))"),
                ),
            ),
            (
                f"{_GROUPS}:_index_is_constant",
                (Check("axis not in x.free"), Check("_step(x, axis, aligned) == 0")),
            ),
        ),
    ),
    Rewrite(
        "panels",
        Family.LAYOUT,
        _EXACT,
        "A weight is stored as panels of columns, zeros to the edge.",
        "compiler.codegen.layout:_pack_panels",
        "return np.ascontiguousarray(ordered).reshape(-1).view(np.uint8)",
        "product",
        (),
        (("compiler.codegen.layout:_padded", (Check("matrix.shape == (rows, k)"),)),),
    ),
)

PRECISION = (
    Rewrite(
        "narrow-operands",
        Family.PRECISION,
        _GATED,
        "Where a level multiplies in bf16, what is summed against a bf16 matrix is rounded to bf16 first.",
        f"{_PRECISION}:_narrowed",
        "return tuple((s if w else _through_bf16(builder, s) "
        "for s, w in zip(sides, is_weight, strict=True)))",
        "product_bf16",
        (Check("is_weight.count(True) != 1", dropped="False"),),
        (
            (f"{_PRECISION}:narrow_operands", (Check("node in products"), Check("node.op is Op.MUL"))),
            (
                f"{_PRECISION}:_is_bf16_weight",
                (
                    Check("node.op is Op.WEIGHT"),
                    Check("node.dtype is DType.BF16"),
                    Check("len(node.shape) == 2"),
                ),
            ),
            (
                f"{_PRECISION}:_through_bf16",
                (Check("node.op is Op.CAST and node.inputs[0].dtype is DType.BF16"),),
            ),
        ),
    ),
)
