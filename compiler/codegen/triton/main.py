"""The interpreter's process: `python -m compiler.codegen.triton.main JOB`, a folder with job.json.

Triton decides when it is imported whether it interprets, hence a process of its own.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    """Run every kernel of the job and save what each wrote."""
    os.environ["TRITON_INTERPRET"] = "1"
    job = Path(sys.argv[1])
    for run in json.loads((job / "job.json").read_text())["runs"]:
        _run(job, run)


def _run(job: Path, run: dict[str, Any]) -> None:
    from compiler.codegen.triton.edge import launch

    buffers = [np.load(job / name) for name in run["buffers"]]
    launch(job / run["module"], run["function"], run["types"], [*buffers, *run["sizes"]], run["programs"])
    for i in run["written"]:
        np.save(job / run["buffers"][i], buffers[i])


if __name__ == "__main__":
    main()
