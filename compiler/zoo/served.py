"""The families that are served: which function builds a config's step, and the tables that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from compiler.checkpoint import Architecture, ModelConfig
from compiler.ir import Graph
from compiler.zoo.gemma2 import build_gemma2
from compiler.zoo.gpt2 import build_gpt2
from compiler.zoo.llama import build_llama
from compiler.zoo.qwen3 import build_qwen3
from compiler.zoo.rope import rope_tables
from compiler.zoo.step import StepLimits


class Builder(Protocol):
    """A function that builds a family's step."""

    def __call__(
        self,
        config: ModelConfig,
        *,
        dtype: str,
        max_context: int,
        block_size: int = 16,
        limits: StepLimits | None = None,
    ) -> Graph: ...


_BUILDERS: Mapping[Architecture, Builder] = {
    Architecture.LLAMA: build_llama,
    Architecture.MISTRAL: build_llama,
    Architecture.QWEN2: build_llama,
    Architecture.QWEN3: build_qwen3,
    Architecture.GEMMA2: build_gemma2,
    Architecture.GPT2: build_gpt2,
}


def build_step(
    config: ModelConfig,
    *,
    dtype: str,
    max_context: int,
    block_size: int = 16,
    limits: StepLimits | None = None,
) -> Graph:
    """One step of any model that is served; see `zoo/step.py` for its interface.

    Raises:
        UnsupportedModel: it cannot be built in this dtype or with this context.
    """
    build = _BUILDERS[config.architecture]
    return build(config, dtype=dtype, max_context=max_context, block_size=block_size, limits=limits)


def step_tables(config: ModelConfig, max_context: int) -> dict[str, npt.NDArray[np.float32]]:
    """The weights of a step that no checkpoint holds."""
    return {} if config.architecture is Architecture.GPT2 else rope_tables(config, max_context)
