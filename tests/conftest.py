"""What every test directory shares: tests that this machine cannot run are deselected, and counted aloud."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from compiler.runtime.cpu import X86_64_V4, X86_64_V4_AMX, host_features

_counts = pytest.StashKey[Counter[str]]()


def _has_cuda() -> bool:
    return Path("/dev/nvidiactl").exists()


def _missing() -> set[str]:
    """The markers whose need this machine does not meet."""
    features = host_features()
    met = {
        "needs_avx512": X86_64_V4.required & ~features == 0,
        "needs_amx": X86_64_V4_AMX.required & ~features == 0,
        "needs_cuda": _has_cuda(),
    }
    return {marker for marker, is_met in met.items() if not is_met}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    missing = _missing()
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
