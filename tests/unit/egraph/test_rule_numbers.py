"""Each rule of the e-graph by its numbers: 200 random cases, its class kept, no guard without a reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from compiler.egraph.rule import Rule, Safety
from compiler.egraph.rules import RULES
from compiler.ir import DType
from compiler.lower import terms as t
from compiler.lower.formation import MAX_START
from compiler.lower.interpret import interpret
from compiler.lower.online import correction
from compiler.lower.terms import Kind, Term
from tests.support.random_values import LENGTHS, is_gated, values
from tests.support.rule_numbers import cases, wrong

Array = npt.NDArray[Any]
CLAIMING = [rule for rule in RULES if rule.then.startswith(("(sfac", "(xfac", "(asp", "(shf", "(union"))]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_a_rule_keeps_its_class_on_random_numbers(rule: Rule) -> None:
    assert cases(rule) >= 200
    assert list(wrong(rule)) == []


@pytest.mark.parametrize("rule", CLAIMING, ids=lambda r: r.name)
def test_what_only_says_where_to_look_is_not_needed_to_be_sound(rule: Rule) -> None:
    assert list(wrong(replace(rule, wants=()), seed=1)) == []


@pytest.mark.parametrize(
    ("rule", "guard"), [(r, g) for r in RULES for g in r.guards], ids=lambda x: getattr(x, "name", x)
)
def test_a_rule_without_one_of_its_guards_is_wrong(rule: Rule, guard: str) -> None:
    dropped = replace(rule, guards=tuple(g for g in rule.guards if g != guard))
    assert rule.name in next(wrong(dropped), "")


@pytest.mark.parametrize(
    "rule", [r for r in CLAIMING if r.safety is Safety.REASSOCIATES], ids=lambda r: r.name
)
def test_a_rule_that_reassociates_is_not_exact(rule: Rule) -> None:
    """So that no class is weaker than it must be."""
    assert rule.name in next(wrong(replace(rule, safety=Safety.EXACT)), "")


def test_a_goal_claims_nothing() -> None:
    goals = [r for r in RULES if r not in CLAIMING]
    assert {head for r in goals for head in r.then.replace("(", " ").split() if head.startswith("w")} <= {
        "wm",
        "wa",
    }
    assert [r.name for r in goals if "union" in r.then or r.guards] == []


# The one pass itself, in float32, as kernels run it


K = "k"
X, V = (t.load(name, [t.idx("i"), t.idx(K)], DType.F32) for name in ("x", "v"))
MAXIMUM = t.reduction(Kind.MAX, K, X)
SHIFTED = t.exp2(t.sub(X, MAXIMUM))


def at(term: Term, buffers: dict[str, Array], n: int) -> Array:
    rows = next(iter(buffers.values())).shape[0]
    return interpret(term, ["i"], {"i": rows, K: n}, buffers, {}, np.float32).astype(np.float32)


def one_pass(body: Term, factor: Term, buffers: dict[str, Array], n: int, tile: int) -> Array:
    """A sum beside its running maximum: tiles of k, old sums rescaled by the derived correction."""
    rows = buffers["x"].shape[0]
    running, now = (t.load(name, [t.idx("i")], DType.F32) for name in ("before", "now"))
    factor_of = t.substitute(correction(factor, [MAXIMUM]), {MAXIMUM: now, t.old(MAXIMUM): running})
    body_now = t.reduction(Kind.SUM, K, t.substitute(body, {MAXIMUM: now}))
    total, maximum = np.zeros(rows, np.float32), np.full(rows, MAX_START, np.float32)
    for start in range(0, n, tile):
        part = {name: x[:, start : start + tile] for name, x in buffers.items()}
        moved = np.maximum(maximum, part["x"].max(1))
        given = {**part, "before": maximum, "now": moved}
        total = total * at(factor_of, given, part["x"].shape[1]) + at(body_now, given, part["x"].shape[1])
        maximum = moved
    return total


def online_bodies() -> Iterator[tuple[str, Term, Term]]:
    yield "exponential", SHIFTED, t.exp2(t.negate(MAXIMUM))
    yield "weighted", t.mul(V, SHIFTED), t.exp2(t.negate(MAXIMUM))
    scale = t.num(1.25, DType.F32)
    scaled = t.exp2(t.mul(t.sub(X, MAXIMUM), scale))
    yield "scaled", scaled, t.exp2(t.mul(t.negate(MAXIMUM), scale))


@pytest.mark.parametrize(("body", "factor"), [(b, f) for _, b, f in online_bodies()])
@pytest.mark.parametrize("tile", [1, 4, 16])
def test_one_pass_equals_two_on_the_gates_numbers(body: Term, factor: Term, tile: int) -> None:
    rows, rng = 72, np.random.default_rng(4)
    compared = 0
    for n in [n for n in LENGTHS if n]:
        buffers = {"x": values(rng, rows, n), "v": values(rng, rows, n)}
        kept = is_gated(rows) & np.isfinite(buffers["x"]).all(1)
        buffers = {name: x[kept] for name, x in buffers.items()}
        buffers["x"][: kept.sum() // 2, n // 2 + 1 :] = -np.inf  # what a mask leaves
        two = at(t.reduction(Kind.SUM, K, body), buffers, n)
        wide = {name: x.astype(np.float64) for name, x in buffers.items()}
        exact = interpret(t.reduction(Kind.SUM, K, body), ["i"], {"i": len(two), K: n}, wide, {})
        one = one_pass(body, factor, buffers, n, tile)
        scale = np.abs(buffers["v"]).sum(1) + 1.0
        error = np.abs(one - exact) - 4 * np.abs(two - exact)
        assert (error <= 2.0**-22 * np.sqrt(n) * scale * 4).all()
        assert np.isfinite(one).all()
        compared += len(two)
    assert compared >= 200
