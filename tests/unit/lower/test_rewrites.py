"""Rewrites made in code: each fires, each keeps its class on random cases, no guard is there for nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from compiler.codegen.layout import pack
from compiler.egraph.rewrites import REWRITES, TABLE
from compiler.egraph.rule import Check, Family, Rewrite
from compiler.egraph.rules import RULES
from compiler.ir import Graph
from compiler.lower.errors import FormationError
from compiler.lower.formation import form
from compiler.lower.precision import narrow_operands
from compiler.search.candidates import forms
from compiler.search.space import schedules
from tests.support import loop_numbers, rewrite_numbers
from tests.support.chained import instances
from tests.support.guard_mutants import mutants, mutated, watched
from tests.support.programs import PROGRAMS
from tests.support.viewed_programs import VIEWED

CHECKS = {**rewrite_numbers.CHECKS, **loop_numbers.CHECKS}
GRAPHS = {**PROGRAMS, **VIEWED}
MUTANTS = list(mutants())
KILLED = [m for m in MUTANTS if not m[2].harmless]
EXPLAINED = [m for m in MUTANTS if m[2].harmless]


def complaints(rewrite: Rewrite) -> Iterator[str]:
    """What a rewrite's check finds wrong."""
    for what, right in CHECKS[rewrite.name](np.random.default_rng(0)):
        if not right.all():
            yield f"{rewrite.name}: {what}"


def is_seen(rewrite: Rewrite, where: str, check: Check, by: str) -> bool:
    """Whether the check of a rewrite sees a mutant: by wrong numbers, or because nothing can be computed."""
    with mutated(where, check.text, by):
        try:
            return next(complaints(rewrite), None) is not None
        except Exception:
            return True


def shown(x: object) -> str:
    return x.name if isinstance(x, Rewrite) else x.text if isinstance(x, Check) else str(x).split(":")[-1]


def test_every_rewrite_has_a_name_a_check_and_a_program() -> None:
    assert {r.name for r in REWRITES} == set(CHECKS)
    assert len({r.name for r in TABLE}) == len(TABLE)
    assert [r.name for r in REWRITES if r.fires_on not in GRAPHS] == []
    assert {r.family for r in TABLE} == set(Family)


@pytest.mark.parametrize("rewrite", REWRITES, ids=shown)
def test_a_rewrite_keeps_its_class_on_random_cases(rewrite: Rewrite) -> None:
    assert list(complaints(rewrite)) == []
    assert sum(right.size for _, right in CHECKS[rewrite.name](np.random.default_rng(1))) >= 200


def compiled(graph: Graph) -> None:
    """A graph taken as far as kernels and packed weights."""
    for g in (graph, narrow_operands(graph)):
        for instance in instances(g):
            for term in forms(instance.canonical, 0)[:1]:
                variant = instance.canonical.with_term(term)
                for schedule in schedules(variant)[:2]:
                    try:
                        params = form(variant, schedule).params
                    except FormationError:
                        continue
                    for p in params:
                        if p.is_packed:
                            pack(np.zeros(p.shape, np.float32), p.layout)  # type: ignore[arg-type]


@pytest.mark.parametrize("rewrite", REWRITES, ids=shown)
def test_each_rewrite_fires_on_its_program(rewrite: Rewrite) -> None:
    fired: list[bool] = []
    with watched(rewrite.where, rewrite.applies, lambda: fired.append(True)):
        compiled(GRAPHS[rewrite.fires_on]())
    assert fired


@pytest.mark.pitfall("C32")
@pytest.mark.parametrize(("rewrite", "where", "check", "by"), KILLED, ids=shown)
def test_a_rewrite_without_one_of_its_guards_is_seen(
    rewrite: Rewrite, where: str, check: Check, by: str
) -> None:
    assert is_seen(rewrite, where, check, by)


@pytest.mark.parametrize(("rewrite", "where", "check", "by"), EXPLAINED, ids=shown)
def test_a_guard_said_to_be_harmless_to_drop_is(rewrite: Rewrite, where: str, check: Check, by: str) -> None:
    assert not is_seen(rewrite, where, check, by)


def test_at_least_95_of_100_guards_are_held_by_numbers() -> None:
    of_rules = sum(len(rule.guards) for rule in RULES)
    assert len(KILLED) + of_rules >= 0.95 * (len(MUTANTS) + of_rules)
