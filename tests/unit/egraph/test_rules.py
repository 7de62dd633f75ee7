"""The rules: each fires, each is sound, and a wrong one would be seen."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest

from compiler.egraph.rule import Rule
from compiler.egraph.rules import CONCLUSIONS, FACTORS, GOALS, RULES
from compiler.egraph.saturate import Limits, Saturated, saturate
from compiler.ir import DType
from compiler.lower.canonical import Canonical
from tests.support.chained import instances
from tests.support.class_oracle import Findings, judge_classes
from tests.support.guard_mutants import mutated
from tests.support.programs import PROGRAMS, graph_of, sizes_of
from tests.support.rule_numbers import wrong

LAYERS = re.compile(
    r"attention|softmax|norm|rope|rotary|gelu|silu|swiglu|head|query|token|causal|mask|layer|mlp|cache",
    re.IGNORECASE,
)
BY_NAME = {rule.name: rule for rule in RULES}
SMALL = sorted({rule.fires_on for rule in RULES} - {"attention"} | {"two_exponents"})
GUARDED = [rule.name for rule in FACTORS if rule.guards]


@cache
def definitions_of(name: str) -> tuple[Canonical, ...]:
    return tuple(i.canonical for i in instances(graph_of(name)) if i.canonical.term.dtype is DType.F32)


def saturated(definition: Canonical, rules: tuple[Rule, ...] = RULES) -> Saturated:
    return saturate(definition.term, rules, Limits(e_nodes=3000, rounds=24), definition.extents)


@cache
def e_nodes_of(name: str) -> int:
    (definition,) = definitions_of(name)
    return saturated(definition).e_nodes


def judged(name: str, rules: tuple[Rule, ...] = RULES) -> list[Findings]:
    """What the oracle says of each definition of a program."""
    return [judge_classes(saturated(d, rules), d, dict(sizes_of(name, 2, 5))) for d in definitions_of(name)]


def with_conclusion(name: str, then: str) -> tuple[Rule, ...]:
    return tuple(replace(r, then=then) if r.name == name else r for r in RULES)


def test_rules_have_names_of_their_own_and_a_program_each() -> None:
    assert len(BY_NAME) == len(RULES)
    assert [r.name for r in RULES if r.fires_on not in PROGRAMS] == []
    assert (*GOALS, *FACTORS, *CONCLUSIONS) == RULES


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_each_rule_fires_on_its_program(name: str) -> None:
    rule = BY_NAME[name]
    (definition,) = definitions_of(rule.fires_on)
    without = tuple(r for r in RULES if r is not rule)
    assert saturated(definition, without).e_nodes < e_nodes_of(rule.fires_on)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_no_rule_knows_a_layer_of_a_model(rule: Rule) -> None:
    assert not LAYERS.search(f"{rule.name} {rule.sentence} {rule.text} {rule.family}")


@pytest.mark.pitfall("C13")
@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_no_rule_holds_a_number(rule: Rule) -> None:
    """So none can take a constant for another one near it."""
    assert not re.search(r"(?<![A-Za-z_0-9])[-+]?\.?\d", rule.text)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_all_members_of_a_class_agree_and_every_promise_holds(name: str) -> None:
    findings = judged(name)
    assert [f.wrong for f in findings if f.wrong] == []
    assert all(f.members > 0 for f in findings) or "bf16" in name


def test_promises_are_made_and_checked() -> None:
    assert sum(f.promises for name in ("attention", "scaled_softmax", "quotient") for f in judged(name)) >= 5


# Wrong rules: the oracle sees each on the programs that rules fire on


def is_seen(rules: tuple[Rule, ...], first: str = "quotient") -> bool:
    """`first` is the program to look at before others."""
    return any(f.wrong for name in dict.fromkeys([first, *SMALL]) for f in judged(name, rules))


@pytest.mark.parametrize("name", GUARDED)
def test_a_rule_without_its_guard_is_seen_by_the_oracle(name: str) -> None:
    rule = BY_NAME[name]
    unguarded = tuple(replace(r, guards=()) if r is rule else r for r in RULES)
    assert is_seen(unguarded, rule.fires_on)


@pytest.mark.pitfall("C32")
@pytest.mark.parametrize(
    ("name", "then"),
    [
        ("factor-through-reciprocal", "(sfac e k (Recip d) i)"),
        ("ratio-through-reciprocal", "(xfac e k (Recip d) i)"),
        ("factor-quotient", "(sfac e k a b)"),
        ("factor-through-divisor", "(sfac e k (Div a d) i)"),
        ("factor-through-dividend", "(sfac e k d i)"),
        ("ratio-through-dividend", "(xfac e k d (Div i b))"),
        ("factor-through-left", "(sfac e k d i)"),
        ("ratio-through-left", "(xfac e k d (Mul i b))"),
        ("ratio-exponential", "(xfac e k (Exp2 d) i)"),
        ("term-through-left", "(asp e k d i)"),
        ("term-through-scale", "(asp e k (Mul d c) i)"),
        ("factor-out-of-sum", "(union e (Add i (Sum k d)))"),
        ("term-out-of-max", "(union e (Mul i (Max k d)))"),
        ("sum-online", "(union e (Online k d i))"),
        ("sum-online", "(union e (Online k b (Mul i i)))"),
    ],
    ids=lambda x: x if " " not in x else "",
)
def test_a_planted_wrong_rule_is_seen_by_the_oracle(name: str, then: str) -> None:
    assert is_seen(with_conclusion(name, then), BY_NAME[name].fires_on)
    planted = replace(BY_NAME[name], then=then)
    assert name in next(wrong(planted), "")


def test_a_sum_is_not_linear_in_a_term() -> None:
    """Taking a term out of a sum forgets how often it is added."""
    wanted = replace(GOALS[0], name="planted", then="(wa b k)")
    taken = replace(
        CONCLUSIONS[0],
        name="planted",
        given="(= e (Sum k b)) (asp b k d i)",
        then="(union e (Add i (Sum k d)))",
    )
    assert is_seen((*RULES, wanted, taken))
    assert "planted" in next(wrong(taken), "")


@pytest.mark.parametrize(
    ("premise", "weaker", "program"),
    [
        ("' '.join((f'(indep {n} k)' for n in names))", "f'(indep {names[0]} k)'", "normalised"),
        ("' '.join((f'(indep {n} k)' for n in names))", "f'(indep {names[-1]} k)'", "biased"),
        ("' '.join((f'(offk {n} k)' for n in names))", "f'(offk {names[0]} k)'", "expected_difference"),
        ("' '.join((f'(offk {n} k)' for n in names))", "f'(offk {names[-1]} k)'", "expected_difference"),
    ],
    ids=["indep of one", "indep of the last", "offk of one", "offk of the last"],
)
def test_a_fact_concluded_of_one_operand_alone_is_seen_by_the_oracle(
    premise: str, weaker: str, program: str
) -> None:
    with mutated("compiler.egraph.language:_facts", premise, weaker):
        assert is_seen(RULES, program)
    assert not any(f.wrong for f in judged(program))
