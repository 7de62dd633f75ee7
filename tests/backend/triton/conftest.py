"""What the tests of this folder share: a tiny checkpoint, and its kernels as the command line builds them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_checkpoints import write_tiny_checkpoint

COMMAND = "from candela.cli.main import run; run()"


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("checkpoint")
    write_tiny_checkpoint(folder, "gqa")
    return folder


@pytest.fixture(scope="session")
def compile_for(checkpoint, tmp_path_factory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `candela compile --target`; `before` is Python that runs first."""

    def compiled(target: str, *options: str, before: str = "") -> subprocess.CompletedProcess[str]:
        out = tmp_path_factory.mktemp("compiled")
        words = ["compile", str(checkpoint), "-o", str(out), "--target", target, *options]
        command = [sys.executable, "-c", before + COMMAND, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=240)

    return compiled


@pytest.fixture(scope="session")
def report(compile_for) -> dict[str, Any]:
    """What `candela compile --target cuda-sm90 --json` said."""
    done = compile_for("cuda-sm90", "--json", "--max-context", "64")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
