"""What the client sends about a checkpoint lets the platform judge it before any weights move."""

from __future__ import annotations

from pathlib import Path

import pytest

from candela.client.source import read_source
from compiler.checkpoint import ProblemCode, triage
from tests.support.tiny_checkpoints import write_tiny_checkpoint


def judged(folder: Path) -> list[tuple[str, str | None]]:
    source = read_source(folder, lambda progress: None)
    sizes = {file.name: file.size_bytes for file in source.files}
    return [(problem.code, problem.where) for problem in triage(sizes, source.config, source.headers)]


def test_a_sharded_checkpoint_passes(tmp_path: Path) -> None:
    assert judged(write_tiny_checkpoint(tmp_path, "sharded")) == []


@pytest.mark.pitfall("S25")
def test_a_missing_shard_is_found_before_the_upload(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path, "sharded")
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    assert judged(tmp_path) == [(ProblemCode.MISSING_SHARD, "model-00002-of-00003.safetensors")]
