"""The rules as data: each has a name, a family, a safety class, one sentence, and its egglog text.

Goal-directed: only what stands under a reduction over `k` is split, and only into (depends on k) and (does
not).
Free algebra (commute, associate, exp(a+b)) is deliberately absent: it grows without bound and would remove
the
subtraction of the maximum that keeps an exponential finite. No rule is shaped like a model's layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Safety(StrEnum):
    EXACT = "exact"  # same bits, infinities, NaN and -0.0 included
    REASSOCIATES = "reassociates"  # same value over the reals, rounded in another order
    NEEDS_GATE = "needs-gate"  # may lose range or cancel: only the gate can admit it


class Family(StrEnum):
    GOALS = "goals"
    FACTORS = "factors"
    CONTRACTION = "contraction"
    CASCADED = "cascaded reductions"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rewrite or one inference. `fires_on` names a program of the test suite that makes it fire."""

    name: str
    family: Family
    safety: Safety
    sentence: str
    text: str
    fires_on: str


def _goal(name: str, sentence: str, text: str, fires_on: str = "softmax") -> Rule:
    return Rule(name, Family.GOALS, Safety.EXACT, sentence, text, fires_on)


def _factor(name: str, sentence: str, text: str, fires_on: str = "softmax") -> Rule:
    return Rule(name, Family.FACTORS, Safety.REASSOCIATES, sentence, text, fires_on)


GOALS = (
    _goal("sum-wants-factors", "The body of a sum over k is worth splitting into a product.",
          "(rule ((= e (Sum k b))) ((wm b k)))"),
    _goal("max-wants-terms", "The body of a maximum over k is worth splitting into a sum.",
          "(rule ((= e (Max k b))) ((wa b k)))", "biased"),
    _goal("product-wants-factors", "To split a product, split its sides.",
          "(rule ((wm e k) (= e (Mul a b))) ((wm a k) (wm b k)))", "normalised"),
    _goal("reciprocal-wants-factors", "To split a reciprocal, split what it inverts.",
          "(rule ((wm e k) (= e (Recip a))) ((wm a k)))", "normalised"),
    _goal("quotient-wants-factors", "To split a quotient, split its sides.",
          "(rule ((wm e k) (= e (Div a b))) ((wm a k) (wm b k)))", "quotient"),
    _goal("exponential-wants-terms", "To split an exponential, split its exponent.",
          "(rule ((wm e k) (= e (Exp2 a))) ((wa a k)))"),
    _goal("addition-wants-terms", "To split a sum of two, split its sides.",
          "(rule ((wa e k) (= e (Add a b))) ((wa a k) (wa b k)))", "biased"),
    _goal("scaled-wants-terms", "To split a scaled value, split the value.",
          "(rule ((wa e k) (= e (Mul a c)) (indep c k)) ((wa a k)))", "scaled_softmax"),
)  # fmt: skip

FACTORS = (
    _factor("factor-right", "A product with an independent right side splits there.",
            "(rule ((wm e k) (= e (Mul a b)) (indep b k)) ((sfac e k a b)))", "normalised"),
    _factor("factor-left", "A product with an independent left side splits there.",
            "(rule ((wm e k) (= e (Mul a b)) (indep a k)) ((sfac e k b a)))", "normalised"),
    _factor("factor-through-left", "A factor of the left side is a factor of the product.",
            "(rule ((= e (Mul a b)) (sfac a k d i)) ((sfac e k (Mul d b) i)))", "normalised"),
    _factor("factor-through-right", "A factor of the right side is a factor of the product.",
            "(rule ((= e (Mul a b)) (sfac b k d i)) ((sfac e k (Mul a d) i)))", "normalised"),
    _factor("factor-through-reciprocal", "A factor of what is inverted comes out inverted.",
            "(rule ((= e (Recip a)) (sfac a k d i)) ((sfac e k (Recip d) (Recip i))))", "inverted"),
    _factor("factor-quotient", "An independent denominator is an independent factor.",
            "(rule ((wm e k) (= e (Div a b)) (indep b k)) ((sfac e k a (Recip b))))", "quotient"),
    _factor("factor-through-dividend", "A factor of the dividend is a factor of the quotient.",
            "(rule ((= e (Div a b)) (sfac a k d i)) ((sfac e k (Div d b) i)))", "quotient"),
    _factor("factor-through-divisor", "A factor of the divisor comes out inverted.",
            "(rule ((= e (Div a b)) (sfac b k d i)) ((sfac e k (Div a d) (Recip i))))", "quotient"),
    _factor("ratio-exponential", "An exponential of a sum splits, to be used as a ratio only.",
            "(rule ((wm e k) (= e (Exp2 z)) (asp z k d i)) ((xfac e k (Exp2 d) (Exp2 i))))"),
    _factor("ratio-through-left", "A ratio factor of the left side is one of the product.",
            "(rule ((= e (Mul a b)) (xfac a k d i)) ((xfac e k (Mul d b) i)))", "attention"),
    _factor("ratio-through-right", "A ratio factor of the right side is one of the product.",
            "(rule ((= e (Mul a b)) (xfac b k d i)) ((xfac e k (Mul a d) i)))", "scaled_softmax"),
    _factor("ratio-through-dividend", "A ratio factor of the dividend is one of the quotient.",
            "(rule ((= e (Div a b)) (xfac a k d i)) ((xfac e k (Div d b) i)))", "quotient"),
    _factor("ratio-through-reciprocal", "A ratio factor comes out of a reciprocal inverted.",
            "(rule ((= e (Recip a)) (xfac a k d i)) ((xfac e k (Recip d) (Recip i))))", "inverted"),
    _factor("term-right", "A sum with an independent right side splits there.",
            "(rule ((wa e k) (= e (Add a b)) (indep b k)) ((asp e k a b)))"),
    _factor("term-left", "A sum with an independent left side splits there.",
            "(rule ((wa e k) (= e (Add a b)) (indep a k)) ((asp e k b a)))", "biased"),
    _factor("term-through-left", "A term of the left side is a term of the sum.",
            "(rule ((= e (Add a b)) (asp a k d i)) ((asp e k (Add d b) i)))", "biased"),
    _factor("term-through-right", "A term of the right side is a term of the sum.",
            "(rule ((= e (Add a b)) (asp b k d i)) ((asp e k (Add a d) i)))", "biased"),
    _factor("term-through-scale", "A term of a scaled value is scaled with it.",
            "(rule ((= e (Mul a c)) (asp a k d i) (indep c k)) ((asp e k (Mul d c) (Mul i c))))",
            "scaled_softmax"),
)  # fmt: skip

CONCLUSIONS = (
    Rule("factor-out-of-sum", Family.CONTRACTION, Safety.REASSOCIATES,
         "A factor that does not depend on k is multiplied after the sum, once.",
         "(rule ((= e (Sum k b)) (sfac b k d i)) ((union e (Mul i (Sum k d)))))", "normalised"),
    Rule("term-out-of-max", Family.CASCADED, Safety.EXACT,
         "A term that does not depend on k is added after the maximum: rounding is monotone.",
         "(rule ((= e (Max k b)) (asp b k d i)) ((union e (Add i (Max k d)))))", "biased"),
    Rule("sum-online", Family.CASCADED, Safety.NEEDS_GATE,
         "A sum whose body carries a factor of running reductions over k runs in their pass, rescaled.",
         "(rule ((= e (Sum k b)) (xfac b k d i) (onk i k)) ((union e (Online k b i))))", "softmax"),
)  # fmt: skip

RULES: tuple[Rule, ...] = (*GOALS, *FACTORS, *CONCLUSIONS)
