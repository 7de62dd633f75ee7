"""Runs the real replica process over `FakeProgram`. `fake.json` in the artifact directory sets its `Fake`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass

from batching.replica.loading import Loaded, ModelSource
from batching.replica.main import serve
from batching.replica.settings import read_settings
from tests.support.fake_program import ByteDetokenizer, FakeProgram


@dataclass(frozen=True)
class Fake:
    """How the fake model behaves: the pace of its steps, its size, and whether it loads at all."""

    step_s: float = 0.002
    max_context: int = 4096
    is_broken: bool = False


def load(source: ModelSource) -> Loaded:
    fake = Fake(**json.loads((source.artifact / "fake.json").read_text()))
    if fake.is_broken:
        raise FileNotFoundError("the artifact has no manifest")
    program = FakeProgram(
        source.kv_blocks, block_size=16, max_context=fake.max_context, max_sequences=8, step_s=fake.step_s
    )
    return Loaded(program, ByteDetokenizer())


if __name__ == "__main__":
    sys.exit(serve(read_settings(sys.argv[1:], os.environ), load))
