"""Qwen 3: Llama's layers, with queries and keys normed head by head before they are rotated."""

from __future__ import annotations

from dataclasses import replace

from compiler.checkpoint import ModelConfig
from compiler.ir import Graph
from compiler.nn import Parameters, RMSNorm, Scores
from compiler.zoo.llama import DecoderLayer
from compiler.zoo.step import StepLimits, StepTrace


def build_qwen3(
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
        layer = _layer(step.parameters.under(f"model.layers.{index}"), config, step.scores(index))
        hidden, cache = layer(hidden, rotary, step.cache(index), step.step)
        step.keep(index, cache)
    return step.finish(hidden, RMSNorm.of(step.parameters.under("model.norm"), config.rms_norm_eps))


def _layer(parameters: Parameters, config: ModelConfig, scores: Scores) -> DecoderLayer:
    layer = DecoderLayer.of(parameters, config, scores)
    query_norm, key_norm = (
        RMSNorm.of(parameters.under(f"self_attn.{name}"), config.rms_norm_eps)
        for name in ("q_norm", "k_norm")
    )
    return replace(layer, attention=replace(layer.attention, query_norm=query_norm, key_norm=key_norm))
