"""The bench and the tuner: a kernel that crashes or hangs takes a child with it, a wrong one is refused."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from compiler.codegen.toolchain import Toolchain
from compiler.lower.tiles import Loop, Reduce, Scale
from compiler.measure.bench import Bench, CandidateCrashed
from compiler.measure.builds import HEADER, kernels_source
from compiler.measure.ground import Plan
from compiler.runtime.cpu import PORTABLE
from compiler.search.candidates import Bucket, Candidate, candidates
from compiler.search.contest import Rounds
from compiler.search.kept import Kept
from compiler.search.tune import NoCandidate, Tuned, tune
from tests.support.chosen import definition_of
from tests.support.compiled_kernels import DIMS
from tests.support.kernel_mutants import KERNEL_MUTANTS, edited

DEADLINE_S = 3.0
KERNELS = (
    HEADER
    + """
CANDELA_KERNEL(k_double) {
  float* x = (float*)bufs[0];
  if (thread == 0) for (int64_t i = 0; i < dims[0]; i++) x[i] *= 2;
}
CANDELA_KERNEL(k_crash) { *(volatile int*)8 = 1; }
CANDELA_KERNEL(k_hang) { for (volatile int i = 0; ; i++) {} }
"""
)
BUCKETS = (Bucket("all", 1, 256, {"T": 4, "S": 80}),)
SIZES = ({"T": 7, "S": 170}, {"T": 1, "S": 1})


@pytest.fixture(scope="session")
def kernels(toolchain: Toolchain) -> Path:
    return toolchain.shared_object(KERNELS, PORTABLE)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path, threads=2, deadline_s=DEADLINE_S) as made:
        yield made


def doubled(bench: Bench) -> list[float]:
    """What the good kernel makes of 1, 2, 3 in a shared buffer."""
    path, shared = bench.share(np.array([1, 2, 3], np.float32))
    bench.run("k_double", [[path]], [3])
    return [float(x) for x in shared]


def children() -> set[int]:
    return {
        p.pid for p in psutil.Process().children(recursive=True) if "compiler.measure.child" in p.cmdline()
    }


def test_what_a_kernel_writes_shows_in_the_shared_buffer(bench: Bench, kernels: Path) -> None:
    bench.load(kernels, 64)
    assert doubled(bench) == [2, 4, 6]


def test_timing_answers_a_number_for_each_repeat(bench: Bench, kernels: Path) -> None:
    bench.load(kernels, 64)
    path, _ = bench.share(np.zeros(3, np.float32))
    seconds = bench.run("k_double", [[path]] * 4, [3], repeats=5)
    assert len(seconds) == 5
    assert all(s > 0 for s in seconds)


@pytest.mark.pitfall("C31")
def test_a_crash_ends_the_child_only_and_the_next_run_works(bench: Bench, kernels: Path) -> None:
    bench.load(kernels, 64)
    with pytest.raises(CandidateCrashed, match="k_crash"):
        bench.run("k_crash", [[]], [0])
    assert doubled(bench) == [2, 4, 6]


@pytest.mark.pitfall("C31")
def test_a_hang_ends_at_the_deadline_and_the_next_run_works(bench: Bench, kernels: Path) -> None:
    bench.load(kernels, 64)
    start = time.monotonic()
    with pytest.raises(CandidateCrashed, match="k_hang"):
        bench.run("k_hang", [[]], [0])
    assert DEADLINE_S <= time.monotonic() - start < 10 * DEADLINE_S
    assert doubled(bench) == [2, 4, 6]


def test_a_kernel_that_is_not_there_is_an_error_of_its_own(bench: Bench, kernels: Path) -> None:
    bench.load(kernels, 64)
    with pytest.raises(CandidateCrashed, match="k_absent"):
        bench.run("k_absent", [[]], [0])
    assert doubled(bench) == [2, 4, 6]


def test_no_child_outlives_its_bench(tmp_path: Path, kernels: Path) -> None:
    before = children()
    with Bench(tmp_path, threads=2, deadline_s=DEADLINE_S) as made:
        made.load(kernels, 64)
        assert len(children() - before) == 1
    assert children() == before


def test_forgotten_buffers_leave_no_file(bench: Bench, kernels: Path, tmp_path: Path) -> None:
    bench.load(kernels, 64)
    doubled(bench)
    bench.forget()
    assert list(tmp_path.iterdir()) == []


# Tuning


def found() -> list[Candidate]:
    """Two candidates of one recipe, and others of causal attention's chosen form."""
    every = candidates(definition_of("causal_attention"), BUCKETS, 2, 0)
    first = [c for c in every if c.term is every[0].term]
    return first[:2]


def mutant(base: Candidate, name: str) -> Candidate:
    kernel = edited(base.kernel, KERNEL_MUTANTS[name])
    return replace(base, name=f"k_{name.replace(' ', '_')}", kernel=kernel, predicted={"all": 1e-12})


def tuned(toolchain: Toolchain, bench: Bench, some: list[Candidate], rounds: Rounds | None = None) -> Tuned:
    shared = toolchain.shared_object(kernels_source(some, DIMS), PORTABLE)
    return tune(definition_of("causal_attention"), some, BUCKETS, shared, bench, Plan(SIZES, DIMS, 0), rounds)


@pytest.mark.pitfall("C32")
def test_mutants_are_refused_with_a_reason_and_the_sound_one_is_chosen(
    toolchain: Toolchain, bench: Bench
) -> None:
    good, _ = found()
    mutants = [mutant(good, name) for name in KERNEL_MUTANTS]
    result = tuned(toolchain, bench, [*mutants, good])
    refused = {r.candidate: r.refusal for r in result.records if r.refusal}
    assert refused.keys() == {m.name for m in mutants}
    assert all("@" in reason for reason in refused.values())
    assert result.chosen["all"] is good


def test_what_is_refused_is_kept_with_the_rules_that_it_came_from(
    toolchain: Toolchain, bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    good, _ = found()
    bad = mutant(good, "correction dropped")
    root = tmp_path_factory.mktemp("refused")
    shared = toolchain.shared_object(kernels_source([bad, good], DIMS), PORTABLE)
    plan = Plan(SIZES, DIMS, 0, kept=Kept(root))
    tune(definition_of("causal_attention"), [bad, good], BUCKETS, shared, bench, plan)
    (folder,) = root.iterdir()
    assert folder.name == bad.name
    error = (folder / "error.txt").read_text()
    assert "unit@" in error
    assert "sum-online" in error
    inputs = np.load(folder / "inputs.npz")
    assert {"written", "expected", "b0"} <= set(inputs.files)
    assert "CANDELA_KERNEL" in (folder / "kernel.cpp").read_text()
    assert json.loads((folder / "schedule.json").read_text())["parallel"] == bad.schedule.parallel
    assert "causal" not in (folder / "definition.txt").read_text()


def test_old_refusals_make_room(tmp_path: Path, toolchain: Toolchain, bench: Bench) -> None:
    for number in range(40):
        (tmp_path / "refused" / f"k_{number}").mkdir(parents=True)
        os.utime(tmp_path / "refused" / f"k_{number}", (number, number))
    good, _ = found()
    bad = mutant(good, "correction dropped")
    shared = toolchain.shared_object(kernels_source([bad, good], DIMS), PORTABLE)
    plan = Plan(SIZES, DIMS, 0, kept=Kept(tmp_path / "refused"))
    tune(definition_of("causal_attention"), [bad, good], BUCKETS, shared, bench, plan)
    left = {p.name for p in (tmp_path / "refused").iterdir()}
    assert bad.name in left
    assert "k_0" not in left
    assert len(left) < 40


def test_a_definition_that_nothing_computes_is_an_error_with_the_reasons(
    toolchain: Toolchain, bench: Bench
) -> None:
    good, _ = found()
    with pytest.raises(NoCandidate, match="unit@T=7"):
        tuned(toolchain, bench, [mutant(good, "correction dropped")])


def test_every_candidate_that_passes_is_timed(toolchain: Toolchain, bench: Bench) -> None:
    good, other = found()
    bad = mutant(good, "bound one long")
    result = tuned(toolchain, bench, [good, other, bad], Rounds(most=2))
    timed = {r.candidate: r.measured_s.get("all", 0.0) for r in result.records}
    assert timed[good.name] > 0
    assert timed[other.name] > 0
    assert timed[bad.name] == 0.0
    assert result.seconds("all") == timed[result.chosen["all"].name]


@pytest.mark.pitfall("C30")
def test_a_busy_machine_is_not_measured_on(toolchain: Toolchain, bench: Bench) -> None:
    good, other = found()
    shared = toolchain.shared_object(kernels_source([good, other], DIMS), PORTABLE)
    plan = Plan(SIZES, DIMS, 0, is_busy=lambda: True)
    result = tune(definition_of("causal_attention"), [good, other], BUCKETS, shared, bench, plan, Rounds())
    assert all(not r.measured_s for r in result.records)


def test_mutants_are_what_they_say() -> None:
    good, _ = found()
    dropped = mutant(good, "correction dropped").kernel
    assert any(isinstance(s, Scale) for s in _flat(good.kernel.body))
    assert not any(isinstance(s, Scale) for s in _flat(dropped.body))
    assert any(isinstance(s, Reduce) for s in _flat(dropped.body))


def _flat(body: tuple[object, ...]) -> list[object]:
    return [x for item in body for x in (_flat(item.body) if isinstance(item, Loop) else [item])]
