"""Bringing a model into this process: the compiled program and the text of its tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from batching.engine import Detokenizer
from batching.replica.program import CompiledProgram


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model lies, and how much of the machine it gets. `kv_blocks` counts usable blocks.

    All cores compute when `threads` is absent.
    """

    artifact: Path
    tokenizer: Path
    kv_blocks: int
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model in memory. Nothing has run yet."""

    program: CompiledProgram
    detokenizer: Detokenizer


Load = Callable[[ModelSource], Loaded]
"""The seam where tests put a model of their own."""


def load_artifact(source: ModelSource) -> Loaded:
    """Map the artifact's weights, open its kernels, read its tokenizer. Raises: what those two raise.

    The program gets one block more than is usable: block 0 is the null block.
    """
    from batching.prompt import Tokenizer
    from compiler.runtime import load_program

    program = load_program(source.artifact, threads=source.threads, kv_blocks=source.kv_blocks + 1)
    return Loaded(program, Tokenizer.load(source.tokenizer))
