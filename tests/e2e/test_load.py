"""A few seconds of `make load`: people who stay and people who leave, and every book says the same."""

from __future__ import annotations

import subprocess
import sys

from tests.support.repository import ROOT


def test_a_short_load_test_keeps_its_objectives_and_its_books() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "loadtest.main", "--scenario", "mixed", "--length-s", "6"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "objectives kept, books kept" in done.stdout
