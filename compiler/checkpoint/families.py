"""What is each family's own in a Hugging Face config: its defaults, and its switches.

Defaults are those of transformers' config classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.checkpoint.config import (
    MAX_CONTEXT,
    MAX_LAYERS,
    MAX_VOCAB,
    MAX_WIDTH,
    Activation,
    Architecture,
    ModelConfig,
)
from compiler.checkpoint.fields import Fields
from compiler.checkpoint.shared_fields import (
    FULL,
    SLIDING,
    activation,
    dtype_said,
    layer_windows,
    read_rope,
    refuse_true,
    refuse_windows,
    sliding_window,
)


@dataclass(frozen=True, slots=True)
class _Defaults:
    """What a family's class takes for an absent field; `kv_heads` and `head_dim` none: from the heads."""

    context: int
    kv_heads: int | None = None
    head_dim: int | None = None
    activation: Activation = Activation.SILU
    activation_field: str = "hidden_act"
    tied: bool = False
    bos: int | None = None
    eos: tuple[int, ...] = ()


def read_llama(fields: Fields) -> ModelConfig:
    """Llama 1 to 3.2, SmolLM, TinyLlama."""
    refuse_windows(fields)
    config = _rotated(fields, Architecture.LLAMA, _Defaults(context=2048, bos=1, eos=(2,)))
    bias = fields.boolean("attention_bias", absent=False)
    mlp_bias = fields.boolean("mlp_bias", absent=False)
    return replace(config, attention_bias=bias, output_bias=bias, mlp_bias=mlp_bias)


def read_mistral(fields: Fields) -> ModelConfig:
    """Every layer has the window, if there is one."""
    refuse_windows(fields)
    defaults = _Defaults(context=131072, kv_heads=8, bos=1, eos=(2,))
    config = _rotated(fields, Architecture.MISTRAL, defaults)
    window = sliding_window(fields, absent=4096)
    if window is None or window >= config.max_position_embeddings:
        return config
    return replace(config, windows=(window,) * config.num_hidden_layers)


def read_qwen2(fields: Fields) -> ModelConfig:
    """Biases on queries, keys and values only."""
    config = _rotated(fields, Architecture.QWEN2, _Defaults(context=32768))
    return replace(config, attention_bias=True, windows=_qwen_windows(fields, config))


def read_qwen3(fields: Fields) -> ModelConfig:
    """Queries and keys are normed, head by head."""
    config = _rotated(fields, Architecture.QWEN3, _Defaults(context=32768, kv_heads=32, head_dim=128))
    bias = fields.boolean("attention_bias", absent=False)
    return replace(config, attention_bias=bias, output_bias=bias, windows=_qwen_windows(fields, config))


def read_gemma2(fields: Fields) -> ModelConfig:
    """Soft caps on scores and logits, windows on every other layer, norms around attention and MLP."""
    refuse_true(fields, "use_bidirectional_attention")
    defaults = _Defaults(
        context=8192,
        kv_heads=4,
        head_dim=256,
        activation=Activation.GELU_TANH,
        activation_field="hidden_activation",
        tied=True,
        bos=2,
        eos=(1,),
    )
    config = _rotated(fields, Architecture.GEMMA2, defaults)
    bias = fields.boolean("attention_bias", absent=False)
    kinds = tuple(FULL if layer % 2 else SLIDING for layer in range(config.num_hidden_layers))
    window = sliding_window(fields, absent=4096)
    return replace(
        config,
        attention_bias=bias,
        output_bias=bias,
        windows=layer_windows(fields, window, config.max_position_embeddings, kinds),
        query_scale=fields.positive("query_pre_attn_scalar", absent=256.0) ** -0.5,
        attention_softcap=fields.positive_or_none("attn_logit_softcapping", absent=50.0),
        final_softcap=fields.positive_or_none("final_logit_softcapping", absent=30.0),
        norm_offset=1.0,
    )


def read_gpt2(fields: Fields) -> ModelConfig:
    """Learned positions; the sizes have names of their own."""
    refuse_true(fields, "scale_attn_by_inverse_layer_idx", "add_cross_attention")
    hidden = fields.integer_or("n_embd", 1, MAX_WIDTH, absent=768)
    heads = fields.integer_or("n_head", 1, MAX_WIDTH, absent=12)
    return ModelConfig(
        architecture=Architecture.GPT2,
        vocab_size=fields.integer_or("vocab_size", 1, MAX_VOCAB, absent=50257),
        hidden_size=hidden,
        intermediate_size=fields.integer_or("n_inner", 1, MAX_WIDTH, absent=4 * hidden),
        num_hidden_layers=fields.integer_or("n_layer", 1, MAX_LAYERS, absent=12),
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=hidden // max(heads, 1),
        rms_norm_eps=fields.positive("layer_norm_epsilon", absent=1e-5),
        max_position_embeddings=fields.integer_or("n_positions", 1, MAX_CONTEXT, absent=1024),
        tie_word_embeddings=fields.boolean("tie_word_embeddings", absent=True),
        attention_bias=True,
        output_bias=True,
        mlp_bias=True,
        activation=activation(fields, "activation_function", Activation.GELU_TANH),
        query_scale=None if fields.boolean("scale_attn_weights", absent=True) else 1.0,
        stores_in_out=True,
        dtype=dtype_said(fields),
        bos_token_id=fields.token("bos_token_id", absent=50256),
        eos_token_ids=fields.tokens("eos_token_id", absent=(50256,)),
    )


def _rotated(fields: Fields, architecture: Architecture, defaults: _Defaults) -> ModelConfig:
    """What all families with rotary embeddings have, without biases or windows."""
    hidden = fields.integer("hidden_size", 1, MAX_WIDTH)
    heads = fields.integer("num_attention_heads", 1, MAX_WIDTH)
    kv_heads = fields.integer_or(
        "num_key_value_heads", 1, MAX_WIDTH, absent=defaults.kv_heads or heads, null=heads
    )
    context = fields.integer_or("max_position_embeddings", 1, MAX_CONTEXT, absent=defaults.context)
    head_dim = defaults.head_dim or hidden // max(heads, 1)
    return ModelConfig(
        architecture=architecture,
        vocab_size=fields.integer("vocab_size", 1, MAX_VOCAB),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size", 1, MAX_WIDTH),
        num_hidden_layers=fields.integer("num_hidden_layers", 1, MAX_LAYERS),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=fields.integer_or("head_dim", 1, MAX_WIDTH, absent=head_dim),
        rms_norm_eps=fields.positive("rms_norm_eps", absent=1e-6),
        max_position_embeddings=context,
        rope=read_rope(fields, context),
        tie_word_embeddings=fields.boolean("tie_word_embeddings", absent=defaults.tied),
        activation=activation(fields, defaults.activation_field, defaults.activation),
        dtype=dtype_said(fields),
        bos_token_id=fields.token("bos_token_id", absent=defaults.bos),
        eos_token_ids=fields.tokens("eos_token_id", absent=defaults.eos),
    )


def _qwen_windows(fields: Fields, config: ModelConfig) -> tuple[int | None, ...]:
    """The layers from `max_window_layers` on, and only where `use_sliding_window` says so."""
    window = sliding_window(fields, absent=4096)
    first = fields.integer_or("max_window_layers", 0, MAX_WIDTH, absent=28)
    used = window if fields.boolean("use_sliding_window", absent=False) else None
    kinds = tuple(SLIDING if layer >= first else FULL for layer in range(config.num_hidden_layers))
    return layer_windows(fields, used, config.max_position_embeddings, kinds)
