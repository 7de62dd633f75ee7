"""Gemma 2: norms before and after attention and MLP, soft caps, and a window on every other layer."""

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
from compiler.zoo.llama import self_attention
from compiler.zoo.step import ACTIVATIONS, StepLimits, StepTrace


def build_gemma2(
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
    hidden = step.embedded() * config.hidden_size**0.5
    for index in range(config.num_hidden_layers):
        layer = _Layer.of(step.parameters.under(f"model.layers.{index}"), config, step.scores(index))
        hidden, cache = layer(hidden, rotary, step.cache(index), step.step)
        step.keep(index, cache)
    return step.finish(hidden, _norm(step.parameters.under("model"), "norm", config))


@dataclass(frozen=True, slots=True)
class _Layer:
    input_norm: RMSNorm
    attention: PagedAttention
    mixed_norm: RMSNorm
    mlp_input_norm: RMSNorm
    mlp: GatedMLP
    mlp_output_norm: RMSNorm

    @classmethod
    def of(cls, parameters: Parameters, config: ModelConfig, scores: Scores) -> _Layer:
        return cls(
            _norm(parameters, "input_layernorm", config),
            self_attention(parameters, config, scores),
            _norm(parameters, "post_attention_layernorm", config),
            _norm(parameters, "pre_feedforward_layernorm", config),
            GatedMLP.of(parameters.under("mlp"), ACTIVATIONS[config.activation]),
            _norm(parameters, "post_feedforward_layernorm", config),
        )

    def __call__(
        self, hidden: Tensor, rotary: Rotary, cache: KeyValueCache, step: PagedStep
    ) -> tuple[Tensor, KeyValueCache]:
        """[T, hidden] f32 in and out."""
        mixed, written = self.attention(self.input_norm(hidden), rotary, cache, step)
        hidden = hidden + self.mixed_norm(mixed)
        return hidden + self.mlp_output_norm(self.mlp(self.mlp_input_norm(hidden))), written


def _norm(parameters: Parameters, name: str, config: ModelConfig) -> RMSNorm:
    return RMSNorm.of(parameters.under(name), config.rms_norm_eps, config.norm_offset)
