"""Wrong rules, planted: the gate or a verifier refuses what comes of each, and the rule is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.egraph.extract import variants
from compiler.egraph.loop_rewrites import BOUNDED, PRECISION
from compiler.egraph.provenance import rules_behind
from compiler.egraph.rewrites import GATHER
from compiler.egraph.rule import Family, Rewrite, Rule, Safety
from compiler.egraph.rules import RULES
from compiler.egraph.saturate import saturate
from compiler.lower.canonical import Canonical
from compiler.lower.errors import LoweringError
from compiler.lower.memory import Arena, Interval, check_arena
from compiler.lower.terms import Term
from compiler.search.candidates import forms
from compiler.search.gate import judge, trials
from tests.support import loop_numbers, rewrite_numbers
from tests.support.chosen import chosen, definition_of, row_kernel
from tests.support.guard_mutants import mutated
from tests.support.programs import sizes_of
from tests.support.tile_machine import TileMachine

CHECKS = {**rewrite_numbers.CHECKS, **loop_numbers.CHECKS}


def planted(name: str, given: str, then: str) -> Rule:
    return Rule(name, Family.ALGEBRA, Safety.EXACT, "Wrong.", given, then, "softmax")


def with_planted(rule: Rule) -> tuple[Rule, ...]:
    """The rules, with one more; a wrong conclusion of one of them takes its place."""
    return (*(r for r in RULES if r.given != rule.given or "Online" not in rule.then), rule)


WRONG = {
    "causal_attention": [
        planted(
            "planted-rescale-twice", "(= e (Sum k b)) (xfac b k d i)", "(union e (Online k b (Mul i i)))"
        ),
        planted("planted-rescale-none", "(= e (Sum k b)) (xfac b k d i)", "(union e (Online k d i))"),
        planted("planted-mask-inverted", "(= e (Select c a b))", "(union e (Select c b a))"),
        planted("planted-mask-dropped", "(= e (Select c a b))", "(union e a)"),
        planted("planted-maximum-dropped", "(= e (Add a b)) (asp e k a i)", "(union e a)"),
    ],
    "batched_product": [
        planted("planted-batch-dropped", "(= e (Sum k b))", '(union e (Sum k (First "o0" b)))'),
        planted("planted-first-only", "(= e (Sum k b)) (extent k n)", "(union e (Mul n (First k b)))"),
    ],
}


def refusal(d: Canonical, term: Term, name: str) -> str:
    """Why the gate refuses a form of a program, run as tiles; empty where it does not."""
    kernel = row_kernel(d.with_term(term), 8) if name != "batched_product" else None
    for trial in trials(d, (dict(sizes_of(name, 3, 21)),), seed=1):
        with np.errstate(all="ignore"):
            if kernel is None:
                written = rewrite_numbers.interpret(term, d.axes, d.extents, trial.inputs, trial.dims)
            else:
                written = TileMachine(kernel, trial.inputs, trial.dims).run()
        verdict = judge(trial, written.astype(np.float32))
        if not verdict.is_accepted:
            return verdict.reason
    return ""


@pytest.mark.pitfall("C32")
@pytest.mark.parametrize(
    ("name", "rule"),
    [(n, r) for n, some in WRONG.items() for r in some],
    ids=lambda x: getattr(x, "name", ""),
)
def test_what_a_planted_rule_makes_is_refused_and_the_rule_named(name: str, rule: Rule) -> None:
    d, rules = definition_of(name), with_planted(rule)
    made = variants(saturate(d.term, rules, extents=d.extents), d.term, 6)
    blamed = rules_behind(made, d.term, rules, extents=d.extents)
    wrong = [term for term in made if rule.name in blamed[term]]
    assert wrong, "the planted rule was used"
    for term in made:
        assert bool(refusal(d, term, name)) == (term in wrong), blamed[term]


@pytest.mark.parametrize("name", ["causal_attention", "row_variance", "normalised"])
def test_a_form_is_explained_by_rules_that_fired_for_it(name: str) -> None:
    d = definition_of(name)
    found = rules_behind([*forms(d, 2), d.term], d.term, extents=d.extents)
    assert found[d.term] == ()
    assert all(behind for form, behind in found.items() if form is not d.term)
    best = found[chosen(name).term]
    wanted = {"causal_attention": "sum-online", "row_variance": "shift-out-of-product"}
    assert wanted.get(name, "factor-out-of-sum") in best


# Planted in code: the check of the rewrite names it


def named(rewrite: Rewrite) -> str:
    """The first complaint of a rewrite's check."""
    for what, right in CHECKS[rewrite.name](np.random.default_rng(0)):
        if not right.all():
            return f"{rewrite.name}: {what}"
    return ""


def of(some: tuple[Rewrite, ...], name: str) -> Rewrite:
    (found,) = [r for r in some if r.name == name]
    return found


def test_a_bound_that_is_off_by_one_is_refused_and_named() -> None:
    bound = of(BOUNDED, "loop-lower-bound")
    d = chosen("sliding_window_attention")
    with mutated(bound.where, "const_index(1)", "const_index(2)"):
        kernel = row_kernel(d, 1)
        assert bound.name in named(bound)
    found = trials(d, (dict(sizes_of("sliding_window_attention", 5, 40)),), seed=1)
    verdicts = [judge(x, TileMachine(kernel, x.inputs, x.dims).run().astype(np.float32)) for x in found]
    assert not all(v.is_accepted for v in verdicts)


def test_sums_rounded_to_bf16_are_named() -> None:
    narrow = of(PRECISION, "narrow-operands")
    copied = "_copy(builder, node, inputs)"
    by = f"_through_bf16(builder, {copied}) if node.op is Op.SUM else {copied}"
    with mutated("compiler.lower.precision:narrow_operands", copied, by):
        assert narrow.name in named(narrow)


def test_a_write_over_a_buffer_that_is_read_is_named() -> None:
    scatter = of(GATHER, "scatter-in-place")
    with mutated(scatter.where, "users[base] != 1", "False"):
        assert scatter.name in named(scatter)


def test_two_live_values_in_one_place_are_refused_by_name() -> None:
    values = (Interval("scores", 256, 0, 2), Interval("sums", 64, 1, 3))
    sound = Arena({"scores": 0, "sums": 256}, 320, 320)
    check_arena(sound, values)
    with pytest.raises(LoweringError, match="scores and sums overlap in stage 1"):
        check_arena(replace(sound, offsets={"scores": 0, "sums": 192}), values)
