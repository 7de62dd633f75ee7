"""`candela compile --target` for a GPU, as a user runs it."""

from __future__ import annotations

from pathlib import Path


def test_a_checkpoint_becomes_a_folder_of_kernels_named_after_the_target(report):
    folder = Path(report["directory"])
    assert folder.name == report["target"] == "cuda-sm90"
    assert sum(p.stat().st_size for p in (folder / "kernels").glob("*.cubin")) == report["bytes"]


def test_without_the_extra_one_line_says_what_to_install(compile_for):
    done = compile_for("cuda-sm90", before="import sys; sys.modules['triton'] = None; ")
    assert done.returncode == 1
    assert "pip install 'candela[gpu]'" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_target_that_does_not_exist_is_refused(compile_for):
    done = compile_for("cuda-sm91")
    assert done.returncode == 1
    assert "cuda-sm90" in done.stderr


def test_a_search_budget_is_misuse(compile_for):
    assert compile_for("cuda-sm90", "--budget", "quick").returncode == 2
