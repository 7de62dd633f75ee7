"""One pass is found for every spelling, by rules that were written for none of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from compiler.egraph.rewrites import TABLE
from compiler.egraph.rule import Rewrite, Rule
from compiler.ir.ops import SPECS
from compiler.lower.canonical import Canonical
from compiler.lower.errors import FormationError
from compiler.lower.formation import form
from compiler.lower.interpret import interpret
from compiler.lower.online import pass_levels, passes, reductions_over
from compiler.lower.terms import Kind, Term, topological
from compiler.lower.tiles import Kernel
from compiler.search.candidates import forms
from compiler.search.gate import judge, trials
from compiler.search.space import schedules
from tests.support.chained import instances
from tests.support.repository import ROOT, python_files, short, tree_of, written_files
from tests.support.rule_numbers import Expr, parsed
from tests.support.spellings import ALL, SPELLINGS
from tests.support.tile_machine import TileMachine

ONLY_ONE_AXIS = {
    "probabilities",
    "log_probabilities",
    "cross_entropy",
    "normed_then_multiplied",
    "centred_then_multiplied",
    "centred_columns",
    "spread_by_division",
    "spread_of_sums",
    "joint_spread",
}
OVER_KEYS = sorted(set(SPELLINGS) - ONLY_ONE_AXIS)


@cache
def definition(name: str) -> Canonical:
    """A spelling is one definition: nothing is stored between its parts."""
    (instance,) = instances(ALL[name]())
    return instance.canonical


@cache
def one_pass(name: str) -> Canonical:
    """The form of fewest passes."""
    d = definition(name)
    return d.with_term(min(forms(d, 0), key=passes))


def streamed(d: Canonical) -> str:
    """The axis of most passes as written."""
    axes = {str(x.attr) for x in topological([d.term]) if x.kind in (Kind.SUM, Kind.MAX)}
    return max(axes, key=lambda a: passes_over(d.term, a))


def passes_over(term: Term, axis: str) -> int:
    return max(pass_levels(reductions_over(term, axis)).values(), default=-1) + 1


@pytest.mark.parametrize("name", sorted(SPELLINGS))
def test_a_spelling_takes_one_pass_where_it_is_written_as_several(name: str) -> None:
    axis = streamed(definition(name))
    assert passes_over(definition(name).term, axis) > 1
    assert passes_over(one_pass(name).term, axis) == 1


def formed(d: Canonical) -> list[Kernel]:
    out = []
    for schedule in schedules(d):
        try:
            out.append(form(d, schedule))
        except FormationError:
            continue
    return out


@pytest.mark.parametrize("name", OVER_KEYS)
def test_no_buffer_of_a_spelling_holds_rows_by_keys(name: str) -> None:
    d = one_pass(name)
    keys = streamed(definition(name))
    kernels = formed(d)
    assert kernels
    for kernel in kernels:
        assert kernel.blocks[keys] <= 64
        assert all(kernel.blocks[d.axes[0]] == 1 or keys not in tile.axes for tile in kernel.tiles())
        assert {p.buffer for p in kernel.params if p.is_written} == {d.place.buffer}


@pytest.mark.parametrize("name", sorted(SPELLINGS))
def test_the_one_pass_form_of_a_spelling_passes_the_gate(name: str) -> None:
    d = one_pass(name)
    sizes = ({"T": 5, "S": 37}, {"T": 2, "S": 1})
    kernel = formed(d)[0]
    for trial in trials(definition(name), sizes, seed=2):
        with np.errstate(all="ignore"):
            written = TileMachine(kernel, trial.inputs, trial.dims).run().astype(np.float32)
        verdict = judge(trial, written)
        assert verdict.is_accepted, verdict.reason


@pytest.mark.parametrize("name", sorted(SPELLINGS))
def test_every_form_of_a_spelling_has_its_value(name: str) -> None:
    d = definition(name)
    for trial in trials(d, ({"T": 3, "S": 11},), seed=3):
        wanted = interpret(d.term, d.axes, d.extents, trial.inputs, trial.dims)
        for term in forms(d, 3):
            found = interpret(term, d.axes, d.extents, trial.inputs, trial.dims)
            both = np.isfinite(wanted) & np.isfinite(found)
            np.testing.assert_allclose(found[both], wanted[both], rtol=1e-6, atol=1e-6)


# Nothing was written for a layer


def operators(x: Expr) -> list[str]:
    """The operators of an expression, facts aside."""
    if isinstance(x, str):
        return []
    inner = [o for part in x for o in operators(part)]
    head = x[0]
    return [str(head), *inner] if isinstance(head, str) and head[0].isupper() else inner


@pytest.mark.parametrize("rule", [r for r in TABLE if isinstance(r, Rule)], ids=lambda r: r.name)
def test_a_rule_matches_no_more_than_one_operator_inside_another(rule: Rule) -> None:
    """What is small enough to be a law of arithmetic is too small to be a layer: the shortest of those has a
    maximum, a difference, an exponential, a sum and a quotient.
    """
    matched = [o for x in parsed(rule.given) for o in operators(x)]
    assert len(matched) <= 2
    assert len({o for x in parsed(rule.then) for o in operators(x)} & {"Exp2", "Max", "Recip", "Sqrt"}) <= 1


@pytest.mark.parametrize("rewrite", [r for r in TABLE if isinstance(r, Rewrite)], ids=lambda r: r.name)
def test_no_rewrite_in_code_names_two_of_the_operators_that_make_a_layer(rewrite: Rewrite) -> None:
    text = " ".join([rewrite.applies, *(c.text for _, c in rewrite.guarded())])
    assert len({k for k in ("EXP2", "SQRT", "RECIP", "SIN") if f"Kind.{k}" in text}) <= 1


def test_every_operator_has_at_most_three_operands_or_moves_elements() -> None:
    """A layer as an operator would have weights, a width, an epsilon."""
    moves = {"gather", "scatter"}
    assert {str(op) for op, spec in SPECS.items() if (spec.arity or 0) > 3} - moves == set()
    assert {k for k in Kind if k.value in ("softmax", "attention", "norm", "silu", "rope")} == set()


LAYER = re.compile(
    r"(?<![a-z])(attention|softmax|(layer|rms)_?norm|rope|rotary|swiglu|silu|gelu|mlp)(?![a-z])",
    re.IGNORECASE,
)
CORE = ("ir", "egraph", "lower", "search", "codegen")
BY_NAME_OF_A_MODEL = {
    "compiler/codegen/triton/checkpoint.py"
}  # starts from a checkpoint, as the pipeline does


def words(tree: ast.Module) -> Iterator[str]:
    """Every name and every string of a module; what is written for people is left out."""
    scopes = (ast.Module, ast.ClassDef, ast.FunctionDef)
    written = {id(s.body[0].value) for s in ast.walk(tree) if isinstance(s, scopes) and _has_docstring(s)}  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        for field in ("id", "attr", "name", "arg"):
            if isinstance(word := getattr(node, field, None), str):
                yield word
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in written:
            yield node.value


def _has_docstring(scope: ast.Module | ast.ClassDef | ast.FunctionDef) -> bool:
    return bool(scope.body) and isinstance(scope.body[0], ast.Expr)


@pytest.mark.parametrize("folder", CORE)
def test_no_name_between_a_graph_and_its_kernels_is_that_of_a_layer(folder: str) -> None:
    """Programs of the tests, which rules name as those that fire them, are no part of the compiler."""
    programs = {r.fires_on for r in TABLE}
    paths = [p for p in python_files("compiler") if p.is_relative_to(ROOT / "compiler" / folder)]
    assert paths
    assert [
        f"{short(path)}: {word}"
        for path in paths
        if short(path) not in BY_NAME_OF_A_MODEL
        for word in words(tree_of(path))
        if LAYER.search(word) and word not in programs
    ] == []


def test_no_micro_kernel_is_that_of_a_layer() -> None:
    sources = [p for p in written_files() if p.is_relative_to(ROOT / "compiler/codegen/micro")]
    assert len(sources) > 5
    assert [short(p) for p in sources if LAYER.search(p.read_text(encoding="utf-8"))] == []
