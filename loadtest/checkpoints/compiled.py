"""Artifacts of a checkpoint in a cache folder, compiled by `candela compile` when they are missing or old."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


def compiled(
    checkpoint: Path,
    out: Path,
    *,
    dtype: str = "bf16",
    budget: str = "quick",
    max_context: int | None = None,
    is_fresh: bool = False,
) -> Path:
    """The folder `out` with artifact/ and tokenizer/, compiled again where compiler or checkpoint are newer.

    Raises: `subprocess.CalledProcessError` when the compile fails.
    """
    manifest = out / "artifact" / "manifest.json"
    if is_fresh or not manifest.exists() or manifest.stat().st_mtime < _newest(checkpoint):
        command = ["compile", str(checkpoint), "-o", str(out), "--dtype", dtype, "--budget", budget]
        if max_context is not None:
            command += ["--max-context", str(max_context)]
        subprocess.run([sys.executable, "-m", "candela.cli", *command], check=True, cwd=_ROOT)
    return out


def _newest(checkpoint: Path) -> float:
    """When the compiler's sources or the checkpoint's files last changed."""
    files = [*(_ROOT / "compiler").rglob("*"), *checkpoint.rglob("*"), checkpoint]
    sources = (path for path in files if path.is_file() and path.suffix != ".pyc")
    return max(path.stat().st_mtime for path in sources)
