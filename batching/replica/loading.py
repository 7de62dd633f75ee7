"""Bringing a model into this process: the compiled program and the text of its tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from batching.engine import Detokenizer
from batching.replica.program import CompiledProgram
from common.errors import ArtifactDamaged


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
    """Map the artifact's weights, compare their digests, open its kernels, read its tokenizer.

    The program gets one block more than is usable: block 0 is the null block.
    Raises: ArtifactDamaged: bytes of the artifact are not those that were published; what the two raise.
    """
    from batching.prompt import Tokenizer
    from compiler.artifact import ArtifactError
    from compiler.runtime import load_program

    threads, kv_blocks = source.threads, source.kv_blocks + 1
    try:
        program = load_program(source.artifact, threads=threads, kv_blocks=kv_blocks, verify=True)
    except ArtifactError as error:
        raise ArtifactDamaged(str(error)) from error
    return Loaded(program, Tokenizer.load(source.tokenizer))
