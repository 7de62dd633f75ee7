"""Times the micro-kernels against what bounds them: `python -m compiler.codegen.micro_bench [level]`.

Figures are the best of several runs: what the kernel can do, not what a busy machine lets it do.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compiler.codegen.toolchain import MICRO_DIR, Toolchain, find_compiler
from compiler.runtime.cpu import X86_64_V4_AMX, Level, best_level, host_features, level_named, usable_cores
from compiler.runtime.memory import address_of, zeroed
from compiler.runtime.team import KernelLibrary, LaunchList, Team

_ROWS = (1, 2, 4, 6, 8, 16, 32, 64, 128, 512)
_COLUMNS_K = (576, 1536)
_WEIGHT_BYTES = 256 << 20
_SPAN_BYTES = 16 << 20
"""What one launch reads: short, so that a launch that nobody interrupts is likely among several."""
_PEAK_ROUNDS = 200_000
_LANES = {"portable": 4, "x86-64-v3": 8}
_MAX_COLUMNS = 1 << 17
_MAX_ROWS = 512


@dataclass(frozen=True, slots=True)
class Figure:
    """One kernel at one size: best seconds, and what they amount to."""

    kernel: str
    m: int
    k: int
    seconds: float
    weight_bytes: int
    flops: int

    @property
    def gbytes_per_s(self) -> float:
        return self.weight_bytes / self.seconds / 1e9

    @property
    def gflops(self) -> float:
        return self.flops / self.seconds / 1e9


class Bench:
    """Operands in memory, and a team to run the kernels."""

    def __init__(self, library: KernelLibrary, team: Team) -> None:
        self._library, self._team = library, team
        self._a, self._w = zeroed(4 * _MAX_ROWS * max(_COLUMNS_K)), zeroed(_WEIGHT_BYTES)
        self._c = zeroed(4 * _MAX_COLUMNS * 32)
        self._a.view(np.float32)[:] = 0.5
        # about a half as a float, and two halves as bf16: no denormals, whatever the kernel reads
        self._w.view(np.uint32)[:] = 0x3F003F00

    def seconds(self, kernel: str, m: int, k: int, panels: int, repeats: int = 48) -> float:
        """Best wall time of one launch; each reads another part of the weights."""
        dims = np.array([m, k, panels], dtype=np.int64)
        samples = []
        for i in range(repeats):
            weights = address_of(self._w) + i % (_WEIGHT_BYTES // _SPAN_BYTES) * _SPAN_BYTES
            buffers = [address_of(self._a), address_of(self._c), weights]
            launches = LaunchList([(self._library.address(kernel), buffers, True)])
            start = time.perf_counter()
            self._team.run(launches, dims)
            samples.append(time.perf_counter() - start)
        return min(samples)

    def packed(self, kernel: str, bytes_per_k: int) -> Iterator[Figure]:
        """The kernel at many rows: with few the weights stream past, with many they stay in cache."""
        for k in _COLUMNS_K:
            for m in _ROWS:
                panels = max(1, _SPAN_BYTES // (k * bytes_per_k) // max(1, m // 8))
                seconds = self.seconds(kernel, m, k, panels)
                yield Figure(kernel, m, k, seconds, panels * k * bytes_per_k, 2 * m * 64 * k * panels)


def main() -> None:
    """Print the table for one level and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("level", nargs="?", default=best_level(host_features()).name)
    parser.add_argument("--threads", type=int, default=usable_cores())
    options = parser.parse_args()
    level = level_named(options.level)
    with tempfile.TemporaryDirectory() as cache:
        toolchain = Toolchain(find_compiler(), Path(cache))
        library = KernelLibrary(toolchain.shared_object((MICRO_DIR / "bench.cpp").read_text(), level))
        library.check_runs_on(host_features(), level.name)
        team = library.team(options.threads, 4096)
        _print_table(Bench(library, team), level, options.threads)
        team.close()


def _print_table(bench: Bench, level: Level, threads: int) -> None:
    lanes = _LANES.get(level.name, 16)
    peak = _PEAK_ROUNDS * 12 * 2 * lanes * threads / bench.seconds("bench_peak", 1, 1, _PEAK_ROUNDS) / 1e9
    panels = _SPAN_BYTES // (576 * 128)
    read = panels * 576 * 128 / bench.seconds("bench_read", 1, 576, panels) / 1e9
    print(f"{level.name}, {threads} threads: {peak:.0f} GFLOP/s float32 peak, {read:.1f} GB/s read")
    kernels = {"bench_packed_bf16": 128, "bench_packed_f32": 256}
    if level is X86_64_V4_AMX:
        kernels["bench_packed_amx"] = 128
    for kernel, bytes_per_k in kernels.items():
        for f in bench.packed(kernel, bytes_per_k):
            memory = f"{f.gbytes_per_s:6.1f} GB/s ({f.gbytes_per_s / read:4.0%})"
            compute = f"{f.gflops:7.1f} GFLOP/s ({f.gflops / peak:4.0%})"
            print(f"{kernel:18} K={f.k:<5} M={f.m:<4} {memory} {compute}")


if __name__ == "__main__":
    main()
