"""The bench runs every kernel that it names, and its figures are about the sizes it was given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compiler.codegen.micro_bench import Bench, Figure
from compiler.codegen.toolchain import MICRO_DIR, Toolchain
from compiler.runtime.cpu import PORTABLE
from compiler.runtime.team import KernelLibrary


@pytest.fixture
def bench(toolchain: Toolchain) -> Iterator[Bench]:
    library = KernelLibrary(toolchain.shared_object((MICRO_DIR / "bench.cpp").read_text(), PORTABLE))
    team = library.team(2, 4096)
    yield Bench(library, team)
    team.close()


@pytest.mark.parametrize("kernel", ["bench_peak", "bench_read", "bench_packed_bf16", "bench_packed_f32"])
def test_a_kernel_takes_time(bench: Bench, kernel: str) -> None:
    assert bench.seconds(kernel, 3, 64, 5, repeats=2) > 0


def test_a_figure_is_rates() -> None:
    figure = Figure("k", m=2, k=3, seconds=0.5, weight_bytes=1_000_000_000, flops=3_000_000_000)
    assert (figure.gbytes_per_s, figure.gflops) == (2, 6)
