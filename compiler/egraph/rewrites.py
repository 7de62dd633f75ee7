"""The rewrites that functions of the lowering make, as data beside the e-graph's rules: one table of all.

A rewrite is a simplifying constructor, a substitution of indices, or a choice of how to read, bound or round.
None is shaped like a model's layer. The tests drop each guard listed here and expect to see wrong numbers.
"""

from __future__ import annotations

from compiler.egraph.loop_rewrites import BOUNDED, CONTRACTION, LAYOUT, PRECISION
from compiler.egraph.rule import Check, Family, Rewrite, Rule, Safety
from compiler.egraph.rules import RULES

_EXACT = Safety.EXACT
_TERMS, _NODES = "compiler.lower.terms", "compiler.lower.index_terms"
_INDEX, _DEFINE = "compiler.lower.indexing", "compiler.lower.definitions"

ALGEBRA = (
    Rewrite(
        "times-one",
        Family.ALGEBRA,
        _EXACT,
        "A product with one is the other side.",
        f"{_TERMS}:mul",
        "return a",
        "scaled_by_one",
        (Check("is_number(a, 1.0)"), Check("is_number(b, 1.0)")),
    ),
    Rewrite(
        "logarithm-of-condition",
        Family.ALGEBRA,
        _EXACT,
        "The logarithm of a condition is a choice between 0 and -inf.",
        f"{_TERMS}:unary",
        "return select(x.args[0], num(0.0, x.dtype), num(float('-inf'), x.dtype))",
        "causal_attention",
        (Check("kind is Kind.LOG2"), Check("x.kind is Kind.CAST"), Check("x.args[0].dtype is DType.BOOL")),
    ),
    Rewrite(
        "known-choice",
        Family.ALGEBRA,
        _EXACT,
        "A choice by a known condition is that side.",
        f"{_TERMS}:select",
        "return a if cond.attr else b",
        "causal_attention",
        (Check("cond.kind is Kind.NUM"),),
    ),
    Rewrite(
        "narrow-again",
        Family.PRECISION,
        _EXACT,
        "A value that was widened and is narrowed back is itself.",
        f"{_TERMS}:cast_to",
        "return x.args[0]",
        "rounded",
        (
            Check("x.kind is Kind.CAST", harmless="only a cast makes f32 of a narrower float"),
            Check("x.dtype is DType.F32"),
            Check("x.args[0].dtype is dtype"),
            Check("dtype in (DType.BF16, DType.F16)"),
        ),
    ),
    Rewrite(
        "shared-axis-name",
        Family.ALGEBRA,
        _EXACT,
        "Reductions of one extent bind one name, unless it is in use at that place.",
        f"{_NODES}:Lowering._bound_axis",
        "self.extents[name] = extent",
        "softmax",
        (Check("(name := f'r{extent}.{j}') in used", dropped="(name := f'r{extent}.{j}') in ()"),),
    ),
    Rewrite(
        "canonical-names",
        Family.ALGEBRA,
        _EXACT,
        "Axes and buffers are named in order of first use.",
        "compiler.lower.canonical:canonicalize",
        "term = rename(definition.term)",
        "product",
    ),
)

VIEWS = (
    Rewrite(
        "permute",
        Family.VIEWS,
        _EXACT,
        "A permuted view reads its input at permuted indices.",
        f"{_NODES}:Lowering.through_view",
        "return tuple(out)",
        "batched_product",
    ),
    Rewrite(
        "expand",
        Family.VIEWS,
        _EXACT,
        "A broadcast view reads its input without that index.",
        f"{_NODES}:Lowering.through_view",
        "return (*indices[:at], *indices[at + 1:])",
        "product",
    ),
    Rewrite(
        "slice",
        Family.VIEWS,
        _EXACT,
        "A slice reads its input at a scaled and moved index.",
        f"{_NODES}:Lowering.through_view",
        "return (*indices[:axis], moved, *indices[axis + 1:])",
        "sliced",
    ),
    Rewrite(
        "reshape",
        Family.VIEWS,
        _EXACT,
        "A reshaped view reads its input at the same row-major position.",
        f"{_NODES}:Lowering.through_view",
        "return tuple(reshape_indices(indices, node.shape, source, self.extents))",
        "paged_attention",
        (),
        ((f"{_NODES}:_matching_runs", (Check("product(a[i:i + di]) == product(b[j:j + dj])"),)),),
    ),
    Rewrite(
        "split-multiples",
        Family.VIEWS,
        _EXACT,
        "Dividing an index takes its multiples of the divisor out, and drops a rest that is smaller.",
        f"{_INDEX}:divide",
        "return (index_term(quotient), index_term(rest))",
        "sliced",
        (Check("is_below(rest, divisor, extents)"), Check("divides(divisor, c)")),
        (
            (
                f"{_INDEX}:is_below",
                (
                    Check("low >= 0"),
                    Check("bounds(limit - high)[0] > 0", weaker=("bounds(limit - high)[0] >= 0",)),
                ),
            ),
            (f"{_INDEX}:interval", (Check("c_low >= 0"),)),
        ),
    ),
    Rewrite(
        "remainder-of-index",
        Family.VIEWS,
        _EXACT,
        "The truncated remainder of an index that is not negative is its floor remainder.",
        f"{_NODES}:Lowering._integer",
        "return divide(args[0], constant, self.extents)[1]",
        "wrapped",
        (Check("low >= 0"), Check("bounds(constant)[0] > 0")),
    ),
    Rewrite(
        "recombine",
        Family.VIEWS,
        _EXACT,
        "n * (x // n) + x % n is x, whatever the scale in front.",
        "compiler.lower.recombine:_one_step",
        "return _replace(form, (rest, quotient), x, c)",
        "merged",
        (
            Check("rest.kind is not Kind.FLOOR_MOD", dropped="False"),
            Check(
                "rest.args[1].kind is not Kind.NUM",
                dropped="False",
                harmless="no coefficient equals what is not a number",
            ),
            Check("quotient.kind is Kind.FLOOR_DIV"),
            Check("quotient.args == rest.args"),
            Check("scale == c * n"),
        ),
    ),
    Rewrite(
        "one-point-axis",
        Family.VIEWS,
        _EXACT,
        "The index along an axis of one point is 0.",
        f"{_DEFINE}:_points",
        "return tuple((const_index(0) if n == 1 else t.idx(a) for a, n in zip(axes, shape, strict=True)))",
        "product",
        (Check("n == 1", weaker=("n == 1 or n == 2",)),),
    ),
    Rewrite(
        "first-value",
        Family.VIEWS,
        _EXACT,
        "The first value along an axis is a read at index 0.",
        "compiler.lower.first:first_along",
        "return done[root]",
        "row_variance",
        (Check("axis not in term.free"),),
        (
            (
                "compiler.egraph.saturate:is_countable",
                (Check("low >= 1", weaker=("low >= 0",)), Check("high <= _COUNTED")),
            ),
        ),
    ),
)

COUNTED = (
    Rewrite(
        "count-of-axis",
        Family.ALGEBRA,
        _EXACT,
        "The sum of one integer along an axis is its product with the axis' length.",
        f"{_NODES}:Lowering._counted",
        "return const_index(total)",
        "row_variance",
        (
            Check("op is Op.SUM"),
            Check("body.kind is Kind.NUM"),
            Check("body.dtype is DType.I32"),
            Check("low >= -2 ** 31"),
            Check("high < 2 ** 31", weaker=("high <= 2 ** 31",)),
        ),
    ),
)

GATHER = (
    Rewrite(
        "gather",
        Family.GATHER,
        _EXACT,
        "A gather reads its data at indices that are themselves terms.",
        f"{_NODES}:Lowering._lower",
        "return self.lower(*asked[-1])",
        "paged_attention",
    ),
    Rewrite(
        "scatter-in-place",
        Family.GATHER,
        _EXACT,
        "A scatter writes over its destination, which nothing else reads.",
        f"{_DEFINE}:_scatter_bases",
        "bases[node] = bases[base] if base.op is Op.SCATTER else input_buffer(base)",
        "written",
        (
            Check("users[base] == 1"),
            Check("users[base] != 1", dropped="False"),
            Check(
                "base.op not in (Op.INPUT, Op.SCATTER)",
                dropped="False",
                harmless="what is not a buffer has no place, and is refused there",
            ),
        ),
    ),
)

REWRITES: tuple[Rewrite, ...] = (
    *ALGEBRA,
    *COUNTED,
    *VIEWS,
    *GATHER,
    *CONTRACTION,
    *BOUNDED,
    *LAYOUT,
    *PRECISION,
)
TABLE: tuple[Rule | Rewrite, ...] = (*RULES, *REWRITES)
