"""Every variant of the zoo as a tiny checkpoint, compiled when a test first asks for it.

Once a session: processes that share its tests share the folder.
"""

from __future__ import annotations

import fcntl
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
from tests.support.tiny_families import write_tiny_family
from tests.support.tiny_gguf import write_tiny_gguf

KV_BLOCKS = 160
TOKENS_A_STEP, SEQUENCES = 64, 8


@dataclass(frozen=True)
class Compiled:
    """A checkpoint, and what `candela compile` would write of it."""

    checkpoint: Path
    artifact: Path
    tokenizer: Path

    def program(self, threads: int = 1) -> Program:
        return load_program(self.artifact, threads=threads, kv_blocks=KV_BLOCKS + 1)

    def engine(self) -> LocalEngine:
        return LocalEngine(self.artifact, self.tokenizer, kv_blocks=KV_BLOCKS, threads=1)


class Zoo:
    """Compiles into one folder with one cache of kernels, which most variants share."""

    def __init__(self, root: Path) -> None:
        root.mkdir(exist_ok=True)
        self._root = root

    def safetensors(self, variant: str, dtype: str) -> Compiled:
        """`variant` of `TINY`, computed in `dtype`."""
        return self._once(f"{variant}-{dtype}", dtype, lambda at: write_tiny_checkpoint(at / "hf", variant))

    def family(self, name: str, dtype: str) -> Compiled:
        """`name` of `FAMILIES`, computed in `dtype`."""
        return self._once(f"{name}-{dtype}", dtype, lambda at: write_tiny_family(at / "hf", name))

    def gguf(self, variant: str, dtype: str) -> Compiled:
        """The same weights, stored as BF16 in a GGUF file."""
        name = f"{variant}-{dtype}-gguf"
        return self._once(name, dtype, lambda at: write_tiny_gguf(at / "model.gguf", variant, "BF16"))

    def _once(self, name: str, dtype: str, write: Callable[[Path], Path]) -> Compiled:
        """Made under a lock; the note in the folder says that it is complete."""
        folder = self._root / name
        folder.mkdir(exist_ok=True)
        note = folder / "complete"
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not note.exists():
                checkpoint = write(folder)
                self._compile(checkpoint, folder, dtype)
                note.write_text(str(checkpoint))
        return Compiled(Path(note.read_text()), folder / "artifact", folder / "tokenizer")

    def _compile(self, checkpoint: Path, out: Path, dtype: str) -> None:
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


@pytest.fixture(scope="session")
def zoo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    own = tmp_path_factory.getbasetemp()
    return Zoo((own.parent if hasattr(request.config, "workerinput") else own) / "zoo")
