"""The Llama family: Llama 1 to 3.2, SmolLM, TinyLlama; Mistral, with its window; Qwen 2, with its biases."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.checkpoint import ModelConfig
from compiler.frontend import Tensor
from compiler.ir import Graph
from compiler.nn import (
    GatedMLP,
    KeyValueCache,
    PagedAttention,
    PagedStep,
    Parameters,
    RMSNorm,
    Rotary,
    Scores,
)
from compiler.zoo.step import ACTIVATIONS, StepLimits, StepTrace


def build_llama(
    config: ModelConfig,
    *,
    dtype: str,
    max_context: int,
    block_size: int = 16,
    limits: StepLimits | None = None,
) -> Graph:
    """One step of the model; see `zoo/step.py` for its interface. Needs the tables of `rope_tables`.

    Raises:
        UnsupportedModel: a dtype that is not "f32" or "bf16", or sizes that attention cannot be built from.
    """
    step = StepTrace.begin(config, dtype, max_context, block_size, limits)
    rotary = step.rotary()
    hidden = step.embedded()
    for index in range(config.num_hidden_layers):
        parameters = step.parameters.under(f"model.layers.{index}")
        layer = DecoderLayer.of(parameters, config, step.scores(index))
        hidden, cache = layer(hidden, rotary, step.cache(index), step.step)
        step.keep(index, cache)
    return step.finish(hidden, RMSNorm.of(step.parameters.under("model.norm"), config.rms_norm_eps))


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """Attention and MLP, each on a normed copy of the residual stream and added to it."""

    input_norm: RMSNorm
    attention: PagedAttention
    post_norm: RMSNorm
    mlp: GatedMLP

    @classmethod
    def of(cls, parameters: Parameters, config: ModelConfig, scores: Scores) -> DecoderLayer:
        eps = config.rms_norm_eps
        return cls(
            RMSNorm.of(parameters.under("input_layernorm"), eps),
            self_attention(parameters, config, scores),
            RMSNorm.of(parameters.under("post_attention_layernorm"), eps),
            GatedMLP.of(parameters.under("mlp"), ACTIVATIONS[config.activation]),
        )

    def __call__(
        self, hidden: Tensor, rotary: Rotary, cache: KeyValueCache, step: PagedStep
    ) -> tuple[Tensor, KeyValueCache]:
        """[T, hidden] f32 in and out."""
        mixed, written = self.attention(self.input_norm(hidden), rotary, cache, step)
        hidden = hidden + mixed
        return hidden + self.mlp(self.post_norm(hidden)), written


def self_attention(parameters: Parameters, config: ModelConfig, scores: Scores) -> PagedAttention:
    """The attention of a layer with `parameters`, in the names that all but GPT-2 share."""
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    return PagedAttention.of(parameters.under("self_attn"), heads, kv_heads, config.head_dim, scores)
