"""What every test directory shares: tests that this machine cannot run are deselected, and counted aloud."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from compiler.codegen.toolchain import CompilerKind, find_compiler
from compiler.runtime.cpu import X86_64_V3, X86_64_V4, X86_64_V4_AMX, Level, host_features

_counts = pytest.StashKey[Counter[str]]()


def _has_cuda() -> bool:
    return Path("/dev/nvidiactl").exists()


def _runs(level: Level) -> bool:
    return level.required & ~host_features() == 0


_NEEDS: Mapping[str, Callable[[], bool]] = {
    "needs_avx2": lambda: _runs(X86_64_V3),
    "needs_avx512": lambda: _runs(X86_64_V4),
    "needs_amx": lambda: _runs(X86_64_V4_AMX),
    "needs_gcc": lambda: find_compiler().kind is CompilerKind.GCC,
    "needs_cuda": _has_cuda,
}
"""A marker, and whether this machine meets its need."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked = {mark.name for item in items for mark in item.iter_markers()} & set(_NEEDS)
    missing = {marker for marker in asked if not _NEEDS[marker]()}
    counts: Counter[str] = Counter()
    kept, dropped = [], []
    for item in items:
        unmet = sorted({mark.name for mark in item.iter_markers()} & missing)
        (dropped if unmet else kept).append(item)
        counts.update(unmet[:1])
    config.stash[_counts] = counts
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for marker, count in sorted(config.stash.get(_counts, Counter()).items()):
        terminalreporter.write_line(f"{count} tests were left out: this machine does not meet {marker}")
