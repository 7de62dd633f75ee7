"""Every variant of the zoo as a tiny checkpoint, compiled once a session, when a test first asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from batching.prompt.export import write_tokenizer_dir
from batching.replica.local import LocalEngine
from compiler.checkpoint import inspect_directory
from compiler.pipeline import CompileOptions, compile_checkpoint
from compiler.runtime import Program, load_program
from tests.support.tiny_checkpoints import write_tiny_checkpoint
from tests.support.tiny_gguf import write_tiny_gguf

KV_BLOCKS = 160
TOKENS_A_STEP, SEQUENCES = 64, 8


@dataclass(frozen=True)
class Compiled:
    """A checkpoint, and what `candela compile` would write of it."""

    checkpoint: Path
    artifact: Path
    tokenizer: Path

    def program(self, threads: int = 2) -> Program:
        return load_program(self.artifact, threads=threads, kv_blocks=KV_BLOCKS + 1)

    def engine(self) -> LocalEngine:
        return LocalEngine(self.artifact, self.tokenizer, kv_blocks=KV_BLOCKS, threads=2)


class Zoo:
    """Compiles into one folder with one cache of kernels, which most variants share."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: dict[tuple[str, str], Compiled] = {}

    def safetensors(self, variant: str, dtype: str) -> Compiled:
        """`variant` of `TINY`, computed in `dtype`."""
        return self._once(variant, dtype, lambda folder: write_tiny_checkpoint(folder / "hf", variant))

    def gguf(self, variant: str, dtype: str) -> Compiled:
        """The same weights, stored as BF16 in a GGUF file."""

        def write(folder: Path) -> Path:
            folder.mkdir(parents=True, exist_ok=True)
            return write_tiny_gguf(folder / "model.gguf", variant, "BF16")

        return self._once(f"{variant}.gguf", dtype, write)

    def _once(self, name: str, dtype: str, write: Callable[[Path], Path]) -> Compiled:
        if (name, dtype) not in self._made:
            self._made[name, dtype] = self._compile(
                write(self._root / name), self._root / name / dtype, dtype
            )
        return self._made[name, dtype]

    def _compile(self, checkpoint: Path, out: Path, dtype: str) -> Compiled:
        info = inspect_directory(checkpoint)
        write_tokenizer_dir(info.directory, out / "tokenizer", info.gguf_metadata)
        options = CompileOptions(
            dtype=dtype,
            budget="none",
            max_batched_tokens=TOKENS_A_STEP,
            max_sequences=SEQUENCES,
            threads=2,
            cache_dir=self._root / "cache",
        )
        compile_checkpoint(checkpoint, out / "artifact", options)
        return Compiled(checkpoint, out / "artifact", out / "tokenizer")


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    return Zoo(tmp_path_factory.mktemp("zoo"))
