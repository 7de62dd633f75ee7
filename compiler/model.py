"""A checkpoint as the compiler sees it: the graph of its model, its weights in the graph's element types, and
the facts that serving needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.artifact.manifest import KvGeometry, ModelFacts
from compiler.checkpoint import ModelConfig
from compiler.checkpoint.inspect import CheckpointInfo
from compiler.ir.dtype import DType
from compiler.ir.graph import verify
from compiler.lower.weight_views import StoredWeights, store_views
from compiler.options import BadOption, CompileOptions
from compiler.zoo import StepLimits, build_step, step_tables
from compiler.zoo.weights import Weights, open_weights

BLOCK_SIZE = 16
_DTYPES = {"f32": DType.F32, "bf16": DType.BF16}


def build_graph(config: ModelConfig, options: CompileOptions) -> StoredWeights:
    """The model's graph of primitives, over weights that lie as they are read.

    Raises:
        BadOption, UnsupportedModel: it cannot be built like this.
    """
    context = options.max_context or config.max_position_embeddings
    if options.dtype not in _DTYPES:
        raise BadOption(f"dtype {options.dtype!r} is none of {', '.join(_DTYPES)}")
    if options.target != "cpu":
        raise BadOption(
            f"target {options.target!r} is not built by this function; see `candela compile --help`"
        )
    limits = StepLimits(options.max_batched_tokens, options.max_sequences)
    graph = build_step(config, dtype=options.dtype, max_context=context, block_size=BLOCK_SIZE, limits=limits)
    verify(graph)
    return store_views(graph)


def model_facts(config: ModelConfig, options: CompileOptions) -> ModelFacts:
    context = options.max_context or config.max_position_embeddings
    kv = KvGeometry(
        config.num_hidden_layers, config.num_key_value_heads, config.head_dim, _DTYPES[options.dtype]
    )
    return ModelFacts(
        config.vocab_size, context, BLOCK_SIZE, options.max_batched_tokens, options.max_sequences, kv
    )


@dataclass(frozen=True, slots=True)
class CheckpointWeights:
    """The graph's weights in their element types and as they lie: the checkpoint's tensors, and the tables
    that are computed.
    """

    checkpoint: Weights
    lying: StoredWeights
    tables: Mapping[str, npt.NDArray[np.float32]]

    def read(self, name: str) -> npt.NDArray[Any]:
        if name in self.tables:
            return np.asarray(self.tables[name], dtype=np.float32)
        is_bf16 = self.lying.graph.weights[name].dtype is DType.BF16
        return self.lying.stored(name, self.checkpoint.bf16(name) if is_bf16 else self.checkpoint.f32(name))

    def read_buffer(self, buffer: str) -> npt.NDArray[Any]:
        return self.read(buffer.removeprefix("w:"))


@contextmanager
def opened_weights(
    info: CheckpointInfo, lying: StoredWeights, options: CompileOptions
) -> Iterator[CheckpointWeights]:
    """The weights of a model, read from the checkpoint as they are asked for."""
    context = options.max_context or info.config.max_position_embeddings
    with open_weights(info) as opened:
        yield CheckpointWeights(opened, lying, step_tables(info.config, context))
