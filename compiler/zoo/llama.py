"""The Llama family as one step over a paged cache: Llama 1 to 3.2, SmolLM, TinyLlama, windowless Mistral.

A step takes tokens of any mixture of sequences, prefill and decode alike, and gives logits for chosen rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.checkpoint import ModelConfig, expected_tensors
from compiler.checkpoint.expected import EMBEDDING, HEAD
from compiler.errors import UnsupportedModel
from compiler.frontend import Tensor, Trace
from compiler.ir import DType, Graph, symbol
from compiler.nn import (
    Embedding,
    GatedMLP,
    KeyValueCache,
    Linear,
    PagedAttention,
    PagedStep,
    Parameters,
    RMSNorm,
    Rotary,
)

COMPUTE_DTYPES = {"f32": DType.F32, "bf16": DType.BF16}


@dataclass(frozen=True, slots=True)
class StepLimits:
    """The most that one step may hold: the upper bounds of the graph's sizes."""

    max_batched_tokens: int = 512
    max_sequences: int = 32
    max_blocks: int = 1 << 20


def key_cache_name(layer: int) -> str:
    """Input and output: [NB, kv_heads, head_dim, block_size]."""
    return f"k_cache.{layer}"


def value_cache_name(layer: int) -> str:
    """Input and output: [NB, kv_heads, block_size, head_dim]."""
    return f"v_cache.{layer}"


def build_llama(
    config: ModelConfig,
    *,
    dtype: str,
    max_context: int,
    block_size: int = 16,
    limits: StepLimits | None = None,
) -> Graph:
    """One step of the model. Weights and caches are stored in `dtype`; everything is computed in f32.

    Sizes: T tokens, R logit rows, B sequences, M block-table width, NB blocks. Inputs, i32: tokens[T],
    positions[T], sequence[T] (row of block_tables), slots[T], block_tables[B, M], logit_rows[R] (indices into
    T); per layer k_cache.{l} and v_cache.{l}. Outputs: logits [R, vocab] f32, and the caches, each over its
    input. Weights: Hugging Face's names, and the tables of `rope_tables`.

    Raises:
        UnsupportedModel: a dtype that is not "f32" or "bf16", or sizes that attention cannot be built from.
    """
    _check(config, dtype, max_context, block_size)
    limits = limits or StepLimits()
    trace = Trace()
    storage = COMPUTE_DTYPES[dtype]
    tokens = symbol("T", 1, limits.max_batched_tokens)
    rows = symbol("R", 0, limits.max_batched_tokens)
    blocks = symbol("NB", 1, limits.max_blocks)
    tables = (symbol("B", 1, limits.max_sequences), symbol("M", 1, -(-max_context // block_size)))

    ids, positions, sequence, slots = (
        trace.input(name, (tokens,), DType.I32) for name in ("tokens", "positions", "sequence", "slots")
    )
    step = PagedStep(positions, sequence, slots, trace.input("block_tables", tables, DType.I32))
    logit_rows = trace.input("logit_rows", (rows,), DType.I32)
    key_shape = (blocks, config.num_key_value_heads, config.head_dim, block_size)
    value_shape = (blocks, config.num_key_value_heads, block_size, config.head_dim)

    parameters = Parameters(trace, expected_tensors(config), storage)
    rotary = Rotary.at(trace, positions, config.head_dim, max_context)
    hidden = Embedding(parameters[EMBEDDING])(ids)
    outputs: dict[str, Tensor] = {}
    caches: dict[str, Tensor] = {}
    for index in range(config.num_hidden_layers):
        key_name, value_name = key_cache_name(index), value_cache_name(index)
        cache = KeyValueCache(
            trace.input(key_name, key_shape, storage), trace.input(value_name, value_shape, storage)
        )
        layer = DecoderLayer.of(parameters.under(f"model.layers.{index}"), config)
        hidden, cache = layer(hidden, rotary, cache, step)
        caches |= {key_name: cache.keys, value_name: cache.values}

    final = RMSNorm.of(parameters.under("model.norm"), config.rms_norm_eps)(hidden[logit_rows,])
    head = Linear(parameters[EMBEDDING if config.tie_word_embeddings else HEAD])
    outputs = {"logits": head(final), **caches}
    return trace.finish(outputs, {name: name for name in caches})


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """Attention and MLP, each on a normed copy of the residual stream and added to it."""

    input_norm: RMSNorm
    attention: PagedAttention
    post_norm: RMSNorm
    mlp: GatedMLP

    @classmethod
    def of(cls, parameters: Parameters, config: ModelConfig) -> DecoderLayer:
        eps = config.rms_norm_eps
        return cls(
            RMSNorm.of(parameters.under("input_layernorm"), eps),
            PagedAttention.of(
                parameters.under("self_attn"),
                config.num_attention_heads,
                config.num_key_value_heads,
                config.head_dim,
            ),
            RMSNorm.of(parameters.under("post_attention_layernorm"), eps),
            GatedMLP.of(parameters.under("mlp")),
        )

    def __call__(
        self, hidden: Tensor, rotary: Rotary, cache: KeyValueCache, step: PagedStep
    ) -> tuple[Tensor, KeyValueCache]:
        """[T, hidden] f32 in and out."""
        mixed, written = self.attention(self.input_norm(hidden), rotary, cache, step)
        hidden = hidden + mixed
        return hidden + self.mlp(self.post_norm(hidden)), written


def _check(config: ModelConfig, dtype: str, max_context: int, block_size: int) -> None:
    if dtype not in COMPUTE_DTYPES:
        raise UnsupportedModel(f"dtype {dtype!r} is not built; {' and '.join(COMPUTE_DTYPES)} are")
    if config.num_attention_heads % config.num_key_value_heads or config.head_dim % 2:
        raise UnsupportedModel(
            f"{config.num_attention_heads} heads of width {config.head_dim} over "
            f"{config.num_key_value_heads} key-value heads: heads must be a multiple, the width even"
        )
    if max_context < 1 or block_size < 1:
        raise UnsupportedModel(f"max_context {max_context} and block_size {block_size} must be positive")
