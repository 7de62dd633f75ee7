"""GPT-2: learned positions, LayerNorm, one projection to queries, keys and values, an MLP without a gate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler.checkpoint import ModelConfig
from compiler.errors import UnsupportedModel
from compiler.frontend import Tensor
from compiler.ir import Graph
from compiler.nn import Embedding, KeyValueCache, LayerNorm, Linear, PagedStep, Parameters, Scores, attend
from compiler.zoo.step import ACTIVATIONS, StepLimits, StepTrace


def build_gpt2(
    config: ModelConfig,
    *,
    dtype: str,
    max_context: int,
    block_size: int = 16,
    limits: StepLimits | None = None,
) -> Graph:
    """One step of the model; see `zoo/step.py` for its interface.

    Raises:
        UnsupportedModel: a dtype that is not "f32" or "bf16", sizes that attention cannot be built from, or
            more context than the model has positions.
    """
    if max_context > config.max_position_embeddings:
        raise UnsupportedModel(
            f"max_context {max_context} is beyond the {config.max_position_embeddings} positions that the "
            "model has embeddings for; ask for no more"
        )
    step = StepTrace.begin(config, dtype, max_context, block_size, limits)
    body = step.parameters.under("transformer")
    hidden = step.embedded() + Embedding.of(body.under("wpe"))(step.step.positions)
    for index in range(config.num_hidden_layers):
        layer = _Layer.of(body.under(f"h.{index}"), config, step.scores(index))
        hidden, cache = layer(hidden, step.cache(index), step.step)
        step.keep(index, cache)
    return step.finish(hidden, LayerNorm.of(body.under("ln_f"), config.rms_norm_eps))


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: LayerNorm
    attention: _Attention
    mlp_norm: LayerNorm
    up: Linear
    down: Linear
    activation: Callable[[Tensor], Tensor]

    @classmethod
    def of(cls, parameters: Parameters, config: ModelConfig, scores: Scores) -> _Layer:
        eps, in_out = config.rms_norm_eps, config.stores_in_out
        return cls(
            LayerNorm.of(parameters.under("ln_1"), eps),
            _Attention.of(parameters.under("attn"), config, scores),
            LayerNorm.of(parameters.under("ln_2"), eps),
            Linear.of(parameters.under("mlp.c_fc"), stores_in_out=in_out),
            Linear.of(parameters.under("mlp.c_proj"), stores_in_out=in_out),
            ACTIVATIONS[config.activation],
        )

    def __call__(self, hidden: Tensor, cache: KeyValueCache, step: PagedStep) -> tuple[Tensor, KeyValueCache]:
        """[T, hidden] f32 in and out."""
        mixed, written = self.attention(self.attention_norm(hidden), cache, step)
        hidden = hidden + mixed
        return hidden + self.down(self.activation(self.up(self.mlp_norm(hidden)))), written


@dataclass(frozen=True, slots=True)
class _Attention:
    """`joined` gives queries, keys and values side by side."""

    joined: Linear
    output: Linear
    heads: int
    head_dim: int
    scores: Scores

    @classmethod
    def of(cls, parameters: Parameters, config: ModelConfig, scores: Scores) -> _Attention:
        joined, output = (
            Linear.of(parameters.under(name), stores_in_out=config.stores_in_out)
            for name in ("c_attn", "c_proj")
        )
        return cls(joined, output, config.num_attention_heads, config.head_dim, scores)

    def __call__(self, x: Tensor, cache: KeyValueCache, step: PagedStep) -> tuple[Tensor, KeyValueCache]:
        """[T, hidden] -> f32 [T, hidden], and the cache with this step's keys and values in it."""
        tokens = x.shape[0]
        joined = self.joined(x).reshape(tokens, 3, self.heads, self.head_dim)
        query, key, value = (joined[:, part] for part in range(3))
        written = cache.write(key, value, step.slots)
        mixed = attend(query, written, step, self.scores)
        return self.output(mixed.reshape(tokens, self.heads * self.head_dim)), written
