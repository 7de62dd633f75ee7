"""A checkpoint's kernels for a GPU. Its weights are not copied: only its config is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from compiler.checkpoint import inspect_directory
from compiler.codegen.triton.model import GpuReport, compile_model_kernels
from compiler.codegen.triton.targets import gpu_target
from compiler.ir.graph import verify
from compiler.zoo import build_step


def compile_checkpoint_kernels(
    checkpoint: Path,
    out_dir: Path,
    target: str,
    *,
    dtype: str = "bf16",
    max_context: int | None = None,
    on_progress: Callable[[float, str], None] = lambda fraction, message: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> GpuReport:
    """Build the kernels of the model in a folder (or a GGUF file); see `compile_model_kernels`.

    Raises:
        CheckpointError, UnsupportedModel: there is no such model, or it cannot be built like this.
        GpuError: what `compile_model_kernels` raises.
    """
    gpu_target(target)
    config = inspect_directory(checkpoint).config
    graph = build_step(config, dtype=dtype, max_context=max_context or config.max_position_embeddings)
    verify(graph)
    return compile_model_kernels(graph, out_dir, target, on_progress, should_stop)
