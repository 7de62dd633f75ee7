"""The equivalence gate accepts what a plain program computes, and names what is wrong with others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from compiler.frontend import Trace
from compiler.frontend.functional import linear
from compiler.ir import DType, bf16_to_f32, bind, round_to_bf16, symbol
from compiler.lower.canonical import Canonical
from compiler.lower.interpret import interpret
from compiler.lower.terms import Term
from compiler.search.gate import Trial, Verdict, is_big, judge, trials
from compiler.search.inputs import InputSet
from tests.support.chained import instances
from tests.support.chosen import chosen, row_kernel
from tests.support.kernel_mutants import (
    KERNEL_MUTANTS,
    edited,
    exchanged,
    moved,
    starts_at_one,
    with_masks,
    without_maximum,
)
from tests.support.programs import PROGRAMS, graph_of, sizes_of
from tests.support.tile_machine import TileMachine

Array = npt.NDArray[Any]


def trials_of(name: str, definition: Canonical) -> list[Trial]:
    sizes = tuple(dict(sizes_of(name, rows, columns)) for rows, columns in ((5, 150), (1, 1)))
    return list(trials(definition, sizes, seed=0))


def plain(definition: Canonical, term: Term, trial: Trial) -> Array:
    """What a float32 program for `term` leaves in the written buffer."""
    d = definition
    shape = tuple(bind(s, trial.dims) for s in d.buffers[d.place.buffer].shape)
    written = np.zeros(shape, np.float32)
    written[trial.places] = interpret(term, d.axes, d.extents, trial.inputs, trial.dims, np.float32)
    return round_to_bf16(written) if d.dtype is DType.BF16 else written


def first_refusal(found: list[Trial], run: Callable[[Trial], Array]) -> Verdict:
    """The first trial's verdict that is a refusal, else the last one."""
    verdict = Verdict(True, 0.0)
    for trial in found:
        verdict = judge(trial, run(trial))
        if not verdict.is_accepted:
            break
    return verdict


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_plain_float_program_passes(name: str) -> None:
    for instance in instances(graph_of(name)):
        d = instance.canonical
        verdict = first_refusal(trials_of(name, d), lambda trial, d=d: plain(d, d.term, trial))  # type: ignore[misc]
        assert verdict.is_accepted, verdict.reason


ONLINE = ("causal_attention", "grouped_attention", "paged_attention", "weighted_mean")


@pytest.mark.parametrize("name", [*ONLINE, "log_of_sum", "quotient"])
def test_a_one_pass_program_passes(name: str) -> None:
    definition = chosen(name)
    kernel = row_kernel(definition, 16)
    verdict = first_refusal(trials_of(name, definition), lambda t: run(kernel, t))
    assert verdict.is_accepted, verdict.reason


def run(kernel: Any, trial: Trial) -> Array:
    with np.errstate(over="ignore"):
        return TileMachine(kernel, trial.inputs, trial.dims).run().astype(np.float32)


@pytest.mark.pitfall("C32")
@pytest.mark.parametrize("mutant", sorted(KERNEL_MUTANTS))
@pytest.mark.parametrize("name", ["causal_attention", "paged_attention"])
@pytest.mark.parametrize("block", [16, 64])
def test_a_kernel_with_one_mistake_is_refused(name: str, mutant: str, block: int) -> None:
    definition = chosen(name)
    kernel = edited(row_kernel(definition, block), KERNEL_MUTANTS[mutant])
    verdict = first_refusal(trials_of(name, definition), lambda t: run(kernel, t))
    assert not verdict.is_accepted
    assert verdict.reason


def test_a_sum_that_starts_at_one_is_refused() -> None:
    definition = chosen("quotient")
    kernel = edited(row_kernel(definition, 16), starts_at_one)
    assert not first_refusal(trials_of("quotient", definition), lambda t: run(kernel, t)).is_accepted


@pytest.mark.pitfall("C15")
@pytest.mark.parametrize(
    "edit", [exchanged, moved(1), moved(-1)], ids=["anti-causal", "one more", "one less"]
)
@pytest.mark.parametrize("name", ["causal_attention", "paged_attention", "alibi_attention"])
def test_a_wrong_mask_is_refused(name: str, edit: Callable[[Term], Term]) -> None:
    d = chosen(name)
    verdict = first_refusal(trials_of(name, d), lambda t: plain(d, with_masks(d.term, edit), t))
    assert not verdict.is_accepted


@pytest.mark.pitfall("C32")
@pytest.mark.parametrize("name", ["attention", "grouped_attention", "paged_attention"])
def test_leaving_out_the_maximum_is_refused_on_large_values(name: str) -> None:
    d = chosen(name)
    verdict = first_refusal(trials_of(name, d), lambda t: plain(d, without_maximum(d.term), t))
    assert not verdict.is_accepted
    assert InputSet.LARGE in verdict.reason


def test_leaving_out_the_maximum_passes_on_unit_values_alone() -> None:
    """Which is why there are other sets."""
    d = chosen("attention")
    unit = [t for t in trials_of("attention", d) if t.name.startswith(InputSet.UNIT)]
    assert first_refusal(unit, lambda t: plain(d, without_maximum(d.term), t)).is_accepted


def test_an_overflowing_correction_is_refused() -> None:
    """A reciprocal of an exponential of a running maximum grows without bound."""
    definition = chosen("inverted")
    kernel = row_kernel(definition, 16)
    assert not first_refusal(trials_of("inverted", definition), lambda t: run(kernel, t)).is_accepted


@pytest.mark.pitfall("C10")
def test_accumulating_in_bf16_is_refused() -> None:
    (instance,) = instances(graph_of("product"))
    d = instance.canonical

    def in_bf16(trial: Trial) -> Array:
        total = np.zeros(trial.expected.shape, np.float32)
        for k in range(trial.inputs["b0"].shape[1]):
            term = np.outer(trial.inputs["b0"][:, k], trial.inputs["b1"][:, k])
            total = bf16_to_f32(round_to_bf16(total + term))
        return total

    assert not first_refusal(trials_of("product", d), in_bf16).is_accepted


def test_one_pass_variance_is_refused_on_offset_values() -> None:
    """The mean of squares minus the square of the mean cancels."""
    (instance,) = instances(graph_of("row_variance"))
    d = instance.canonical

    def moments(trial: Trial) -> Array:
        x = trial.inputs["b0"]
        n = np.float32(x.shape[1])
        total, squares = x.sum(1, dtype=np.float32), (x * x).sum(1, dtype=np.float32)
        return (squares / n - (total / n) ** 2).astype(np.float32)  # type: ignore[no-any-return]

    verdict = first_refusal(trials_of("row_variance", d), moments)
    assert not verdict.is_accepted
    assert InputSet.OFFSET in verdict.reason


def cancelling_sum(depth: int = 128) -> list[Trial]:
    """Rows times a weight stored [in, out]: what rises along a row cancels against what does not."""
    trace = Trace()
    x = trace.input("x", (symbol("T", 1, 64), depth), DType.F32)
    w = trace.weight("w", (depth, 192), DType.F32)
    (instance,) = instances(trace.finish({"y": linear(x, w.permute(1, 0))}))
    return list(trials(instance.canonical, ({"T": 5},), seed=0))


def test_one_chain_of_additions_passes_where_terms_cancel() -> None:
    found = cancelling_sum()

    def chain(trial: Trial) -> Array:
        x, w = (trial.inputs[b] for b in ("b0", "b1"))
        return np.add.accumulate(x[:, :, None] * w, axis=1, dtype=np.float32)[:, -1]  # type: ignore[no-any-return]

    (rising,) = (t for t in found if InputSet.RISING in t.name)
    error = float(np.abs(chain(rising) - rising.expected).max())
    assert error > rising.tolerance
    assert first_refusal(found, chain).is_accepted


@pytest.mark.parametrize("depth", [1, 8, 40, 129, 1000, 4096])
def test_the_budget_of_a_sum_grows_with_its_terms(depth: int) -> None:
    def chain(trial: Trial) -> Array:
        x, w = (trial.inputs[b] for b in ("b0", "b1"))
        total = np.zeros(trial.expected.shape, np.float32)
        for k in range(depth):
            total += x[:, k, None] * w[k]
        return total

    verdict = first_refusal(cancelling_sum(depth), chain)
    assert verdict.is_accepted, verdict.reason


def test_a_sum_in_bf16_is_refused_where_terms_cancel() -> None:
    found = cancelling_sum()

    def rounded(trial: Trial) -> Array:
        x, w = (trial.inputs[b] for b in ("b0", "b1"))
        halves = [bf16_to_f32(round_to_bf16(np.cumsum(part, axis=1)[:, -1])) for part in _parts(x, w)]
        return np.sum(halves, axis=0, dtype=np.float32)  # type: ignore[no-any-return]

    assert [judge(t, rounded(t)).is_accepted for t in found] == [False] * len(found)


def _parts(x: Array, w: Array) -> list[Array]:
    terms = x[:, :, None] * w
    return [terms[:, :64], terms[:, 64:]]


# What is not written, and what is not judged


def test_writing_elsewhere_is_refused() -> None:
    expected, before = np.array([1.0]), np.zeros(3, np.float32)
    untouched = np.array([True, False, True])
    places = (np.array([1]),)
    scattered = Trial(
        "t",
        {},
        {"out": before},
        expected,
        1e-3,
        places,
        np.ones(1, dtype=bool),
        untouched=untouched,
        written="out",
    )
    assert judge(scattered, np.array([0, 1, 0], np.float32)).is_accepted
    verdict = judge(scattered, np.array([0, 1, 7], np.float32))
    assert not verdict.is_accepted
    assert "wrote where" in verdict.reason


def long_product() -> Canonical:
    trace = Trace()
    x = trace.input("x", (symbol("T", 1, 64), 8), DType.F32)
    out = linear(x, trace.weight("w", (700_000, 8), DType.F32))
    (instance,) = instances(trace.finish({"y": out}))
    return instance.canonical


def test_a_very_long_axis_is_judged_at_its_ends_and_some_places_between() -> None:
    d = long_product()
    assert is_big(d)
    found = list(trials(d, ({"T": 5}, {"T": 2}), seed=0))
    assert [t.expected.shape[0] for t in found] == [5, 2]
    assert all(t.inputs["b1"] is found[0].inputs["b1"] for t in found)
    for t in found:
        columns = t.places[1]
        assert columns.min() == 0
        assert columns.max() == 699_999
        assert 256 < len(np.unique(columns)) < 1024
        right = t.inputs["b0"] @ t.inputs["b1"].T
        assert judge(t, right).is_accepted
        right[:, -1] += 1
        assert not judge(t, right).is_accepted


# Verdicts by hand


def trial(expected: list[float], tolerance: float = 1e-3) -> Trial:
    values = np.array(expected)
    places = (np.arange(len(expected)),)
    return Trial("t", {}, {}, values, tolerance, places, np.ones(len(expected), dtype=bool))


@pytest.mark.parametrize(
    ("expected", "written", "reason"),
    [
        ([1.0, 2.0], [1.0, 2.01], "over budget"),
        ([1.0, 2.0], [1.0, np.nan], "NaN"),
        ([1.0, np.nan], [1.0, 2.0], "NaN"),
        ([1.0, np.inf], [1.0, -np.inf], "infinities"),
        ([1.0, np.inf], [1.0, 3e38], "infinities"),
        ([1.0, 2.0], [1.0, np.inf], "infinities"),
    ],
)
def test_what_differs_is_named(expected: list[float], written: list[float], reason: str) -> None:
    verdict = judge(trial(expected), np.array(written, np.float32))
    assert not verdict.is_accepted
    assert reason in verdict.reason


@pytest.mark.parametrize(
    "values",
    [[1.0, 2.0], [1.0, np.nan], [np.inf, -np.inf], [1.0, 2.0005]],
    ids=["equal", "nan", "inf", "near"],
)
def test_what_agrees_is_accepted(values: list[float]) -> None:
    nearly = [2.0 if v == 2.0005 else v for v in values]
    assert judge(trial(values), np.array(nearly, np.float32)).is_accepted


def test_an_exact_trial_allows_no_difference() -> None:
    assert judge(trial([0.0], tolerance=0.0), np.zeros(1, np.float32)).is_accepted
    assert not judge(trial([0.0], tolerance=0.0), np.full(1, 1e-30, np.float32)).is_accepted


def test_dropped_writes_are_not_judged() -> None:
    base = trial([1.0, 2.0])
    kept = Trial("t", {}, {}, base.expected, 1e-3, base.places, np.array([True, False]))
    assert judge(kept, np.array([1.0, 99.0], np.float32)).is_accepted
