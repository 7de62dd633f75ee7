"""The e-graph's rules as data: name, family, safety class, one sentence, what egglog matches and concludes.

Goal-directed: only what stands under a reduction over `k` is split, and only into (depends on k) and (does
not). Free algebra (commute, associate, exp(a+b)) is deliberately absent: it grows without bound and would
remove the subtraction of the maximum that keeps an exponential finite. No rule is shaped like a layer.
"""

from __future__ import annotations

from compiler.egraph.rule import Family, Rule, Safety

_EXACT, _REASSOCIATES, _GATED = Safety.EXACT, Safety.REASSOCIATES, Safety.NEEDS_GATE
_PLAIN, _CASCADED = Family.ALGEBRA, Family.CASCADED


def _goal(name: str, sentence: str, given: str, then: str, on: str = "softmax", wants: str = "") -> Rule:
    steering = (wants,) if wants else ()
    return Rule(name, Family.GOALS, _EXACT, sentence, given, then, on, wants=steering)


GOALS = (
    _goal("sum-wants-factors", "The body of a sum over k is worth splitting into a product.",
          "(= e (Sum k b))", "(wm b k)"),
    _goal("max-wants-terms", "The body of a maximum over k is worth splitting into a sum.",
          "(= e (Max k b))", "(wa b k)", "biased"),
    _goal("product-wants-factors", "To split a product, split its sides.",
          "(wm e k) (= e (Mul a b))", "(wm a k) (wm b k)", "normalised"),
    _goal("reciprocal-wants-factors", "To split a reciprocal, split what it inverts.",
          "(wm e k) (= e (Recip a))", "(wm a k)", "normalised"),
    _goal("quotient-wants-factors", "To split a quotient, split its sides.",
          "(wm e k) (= e (Div a b))", "(wm a k) (wm b k)", "quotient"),
    _goal("exponential-wants-terms", "To split an exponential, split its exponent.",
          "(wm e k) (= e (Exp2 a))", "(wa a k)"),
    _goal("addition-wants-terms", "To split a sum of two, split its sides.",
          "(wa e k) (= e (Add a b))", "(wa a k) (wa b k)", "biased"),
    _goal("scaled-wants-terms", "To split a scaled value, split the value.",
          "(wa e k) (= e (Mul a c))", "(wa a k)", "scaled_softmax", wants="(indep c k)"),
    _goal("factor-wants-terms", "To split a factor that is a sum and reads a reduction, split its sides.",
          "(wm e k) (= e (Add a b))", "(wa e k)", "row_variance", wants="(onk e k)"),
)  # fmt: skip

FACTORS = (
    Rule("factor-right", _PLAIN, _EXACT, "A product with an independent right side splits there.",
         "(= e (Mul a b))", "(sfac e k a b)", "normalised", ("(indep b k)",), ("(wm e k)",)),
    Rule("factor-left", _PLAIN, _EXACT, "A product with an independent left side splits there.",
         "(= e (Mul a b))", "(sfac e k b a)", "normalised", ("(indep a k)",), ("(wm e k)",)),
    Rule("factor-through-left", _PLAIN, _REASSOCIATES, "A factor of the left side is one of the product.",
         "(= e (Mul a b)) (sfac a k d i)", "(sfac e k (Mul d b) i)", "normalised"),
    Rule("factor-through-right", _PLAIN, _REASSOCIATES, "A factor of the right side is one of the product.",
         "(= e (Mul a b)) (sfac b k d i)", "(sfac e k (Mul a d) i)", "normalised"),
    Rule("factor-through-reciprocal", _PLAIN, _REASSOCIATES, "A factor of a divisor comes out inverted.",
         "(= e (Recip a)) (sfac a k d i)", "(sfac e k (Recip d) (Recip i))", "inverted"),
    Rule("factor-quotient", _PLAIN, _REASSOCIATES, "An independent denominator is an independent factor.",
         "(= e (Div a b))", "(sfac e k a (Recip b))", "quotient", ("(indep b k)",), ("(wm e k)",)),
    Rule("factor-through-dividend", _PLAIN, _REASSOCIATES, "A factor of the dividend is one of the quotient.",
         "(= e (Div a b)) (sfac a k d i)", "(sfac e k (Div d b) i)", "quotient"),
    Rule("factor-through-divisor", _PLAIN, _REASSOCIATES, "A factor of the divisor comes out inverted.",
         "(= e (Div a b)) (sfac b k d i)", "(sfac e k (Div a d) (Recip i))", "quotient"),
    Rule("ratio-exponential", _CASCADED, _GATED, "An exponential of a sum splits, for use as a ratio only.",
         "(= e (Exp2 z)) (asp z k d i)", "(xfac e k (Exp2 d) (Exp2 i))", "softmax", (), ("(wm e k)",)),
    Rule("ratio-through-left", _CASCADED, _GATED, "A ratio factor of the left side is one of a product.",
         "(= e (Mul a b)) (xfac a k d i)", "(xfac e k (Mul d b) i)", "attention"),
    Rule("ratio-through-right", _CASCADED, _GATED, "A ratio factor of the right side is one of a product.",
         "(= e (Mul a b)) (xfac b k d i)", "(xfac e k (Mul a d) i)", "scaled_softmax"),
    Rule("ratio-through-dividend", _CASCADED, _GATED, "A ratio factor of the dividend is one of a quotient.",
         "(= e (Div a b)) (xfac a k d i)", "(xfac e k (Div d b) i)", "quotient"),
    Rule("ratio-through-reciprocal", _CASCADED, _GATED, "A ratio factor comes out of a reciprocal inverted.",
         "(= e (Recip a)) (xfac a k d i)", "(xfac e k (Recip d) (Recip i))", "inverted"),
    Rule("term-right", _PLAIN, _EXACT, "A sum with an independent right side splits there.",
         "(= e (Add a b))", "(asp e k a b)", "softmax", ("(indep b k)",), ("(wa e k)",)),
    Rule("term-left", _PLAIN, _EXACT, "A sum with an independent left side splits there.",
         "(= e (Add a b))", "(asp e k b a)", "biased", ("(indep a k)",), ("(wa e k)",)),
    Rule("term-through-left", _PLAIN, _REASSOCIATES, "A term of the left side is a term of the sum.",
         "(= e (Add a b)) (asp a k d i)", "(asp e k (Add d b) i)", "biased"),
    Rule("term-through-right", _PLAIN, _REASSOCIATES, "A term of the right side is a term of the sum.",
         "(= e (Add a b)) (asp b k d i)", "(asp e k (Add a d) i)", "biased"),
    Rule("term-through-scale", _PLAIN, _REASSOCIATES, "A term of a scaled value is scaled with it.",
         "(= e (Mul a c)) (asp a k d i)", "(asp e k (Mul d c) (Mul i c))", "scaled_softmax",
         ("(indep c k)",)),
    Rule("shifted-left", _CASCADED, _EXACT, "A left side that is a sum of two is a shifted factor.",
         "(= e (Mul a b)) (asp a k u i)", "(shf e k b u i)", "centred_product", (),
         ("(wm e k)", "(onk i k)")),
    Rule("shifted-right", _CASCADED, _EXACT, "A right side that is a sum of two is a shifted factor.",
         "(= e (Mul a b)) (asp b k u i)", "(shf e k a u i)", "row_variance", (), ("(wm e k)", "(onk i k)")),
    Rule("shifted-through-left", _CASCADED, _REASSOCIATES, "A shifted factor of one side is one of both.",
         "(= e (Mul a b)) (shf a k r u i)", "(shf e k (Mul r b) u i)", "centred_product"),
    Rule("shifted-through-right", _CASCADED, _REASSOCIATES, "A shifted factor of a side is one of both.",
         "(= e (Mul a b)) (shf b k r u i)", "(shf e k (Mul a r) u i)", "centred_product"),
)  # fmt: skip

CONCLUSIONS = (
    Rule("factor-out-of-sum", Family.CONTRACTION, _REASSOCIATES,
         "A factor that does not depend on k is multiplied after the sum, once.",
         "(= e (Sum k b)) (sfac b k d i)", "(union e (Mul i (Sum k d)))", "normalised"),
    Rule("term-out-of-max", _CASCADED, _REASSOCIATES,
         "A finite term that does not depend on k is added after the maximum: rounding is monotone.",
         "(= e (Max k b)) (asp b k d i)", "(union e (Add i (Max k d)))", "biased"),
    Rule("sum-online", _CASCADED, _GATED,
         "A sum whose body reads running reductions over k in one factor only runs in their pass, rescaled.",
         "(= e (Sum k b)) (xfac b k d i)", "(union e (Online k b i))", "softmax",
         ("(offk d k)",), ("(onk i k)",)),
    Rule("shift-out-of-sum", _CASCADED, _GATED,
         "A sum of values shifted by another reduction: shift by the first value instead, and correct after.",
         "(= e (Sum k b)) (asp b k u i) (extent k n) (minus m)",
         "(union e (Add (Sum k (Add u (Mul m (First k u)))) (Mul n (Add (First k u) i))))",
         "shortfall", (), ("(onk i k)",)),
    Rule("shift-out-of-product", _CASCADED, _GATED,
         "A sum of products with a shifted factor: shift by the first value instead, and correct after.",
         "(= e (Sum k b)) (shf b k r u i) (extent k n) (minus m)",
         "(union e (Add (Sum k (Mul (Add u (Mul m (First k u))) r)) (Mul (Add (First k u) i) (Sum k r))))",
         "row_variance"),
)  # fmt: skip

RULES: tuple[Rule, ...] = (*GOALS, *FACTORS, *CONCLUSIONS)
