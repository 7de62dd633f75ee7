"""What a Llama-family model is: `ModelConfig`, and how a Hugging Face `config.json` becomes one.

Every dialect that published checkpoints use is read; what would change the arithmetic and is not built is
refused by name, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from compiler.checkpoint.errors import CheckpointError, Problem, ProblemCode
from compiler.checkpoint.fields import Fields
from compiler.checkpoint.rope import Rope, RopeKind
from compiler.checkpoint.strict_json import shown

MAX_LAYERS = 512
MAX_WIDTH = 1 << 20
MAX_VOCAB = 1 << 22
MAX_CONTEXT = 1 << 26


class Architecture(StrEnum):
    """Hugging Face classes that the zoo builds."""

    LLAMA = "LlamaForCausalLM"
    MISTRAL = "MistralForCausalLM"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and switches of one decoder of the Llama family, under Hugging Face's names."""

    architecture: Architecture
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position_embeddings: int
    rope: Rope = field(default_factory=Rope)
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    dtype: str = "float32"
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()


def config_from_hf(raw: Mapping[str, object], where: str = "config.json") -> ModelConfig:
    """Read a Hugging Face config.

    Raises:
        CheckpointError: every field that is missing, malformed or unsupported, at once. Codes: `bad_config`,
            `unknown_architecture`, `unsupported_config`.
    """
    architecture = _architecture(raw, where)
    fields = Fields(raw, where)
    _refuse_unbuilt(fields, architecture)
    llama = architecture is Architecture.LLAMA
    hidden = fields.integer("hidden_size", 1, MAX_WIDTH)
    heads = fields.integer("num_attention_heads", 1, MAX_WIDTH)
    kv_heads = fields.integer_or(
        "num_key_value_heads", 1, MAX_WIDTH, absent=heads if llama else 8, null=heads
    )
    context = fields.integer_or("max_position_embeddings", 1, MAX_CONTEXT, absent=2048 if llama else 131072)
    config = ModelConfig(
        architecture=architecture,
        vocab_size=fields.integer("vocab_size", 1, MAX_VOCAB),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size", 1, MAX_WIDTH),
        num_hidden_layers=fields.integer("num_hidden_layers", 1, MAX_LAYERS),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=fields.integer_or("head_dim", 1, MAX_WIDTH, absent=hidden // max(heads, 1)),
        rms_norm_eps=fields.positive("rms_norm_eps", absent=1e-6),
        max_position_embeddings=context,
        rope=_rope(fields, context),
        tie_word_embeddings=fields.boolean("tie_word_embeddings", absent=False),
        attention_bias=llama and fields.boolean("attention_bias", absent=False),
        mlp_bias=llama and fields.boolean("mlp_bias", absent=False),
        dtype=_dtype(fields),
        bos_token_id=fields.token("bos_token_id", absent=1),
        eos_token_ids=fields.tokens("eos_token_id", absent=(2,)),
    )
    check_heads(config, fields)
    fields.finish()
    return config


def check_heads(config: ModelConfig, fields: Fields) -> None:
    """Note what attention cannot be built from, in the names that `fields` reads."""
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    if not fields.has("head_dim") and config.hidden_size % max(heads, 1):
        fields.note(
            ProblemCode.BAD_CONFIG,
            f"hidden_size {config.hidden_size} is not a multiple of num_attention_heads {heads}",
            "hidden_size",
        )
    if kv_heads and heads % kv_heads:
        fields.note(
            ProblemCode.BAD_CONFIG,
            f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}",
            "num_key_value_heads",
        )
    if config.head_dim % 2:
        fields.note(
            ProblemCode.UNSUPPORTED_CONFIG, f"head_dim {config.head_dim} must be even to rotate", "head_dim"
        )


def _architecture(raw: Mapping[str, object], where: str) -> Architecture:
    names = raw.get("architectures")
    known = " and ".join(Architecture)
    if isinstance(names, list) and len(names) == 1 and names[0] in list(Architecture):
        return Architecture(names[0])
    if not names and raw.get("model_type") in ("llama", "mistral"):
        return Architecture.LLAMA if raw["model_type"] == "llama" else Architecture.MISTRAL
    said = names if names else raw.get("model_type")
    message = f"{where}: architecture {shown(said)} is not supported; {known} are"
    raise CheckpointError([Problem(ProblemCode.UNKNOWN_ARCHITECTURE, message, "architectures")])


def _refuse_unbuilt(fields: Fields, architecture: Architecture) -> None:
    raw = fields.raw
    unsupported = ProblemCode.UNSUPPORTED_CONFIG
    act = raw.get("hidden_act", "silu")
    if act not in ("silu", "swish"):
        fields.note(unsupported, f"hidden_act {shown(act)} is not supported; silu is", "hidden_act")
    quantization = raw.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method") if isinstance(quantization, Mapping) else quantization
        message = f"quantization_config {shown(method)} is not supported; upload unquantised weights or GGUF"
        fields.note(unsupported, message, "quantization_config")
    window = raw.get("sliding_window", 4096 if architecture is Architecture.MISTRAL else None)
    context = raw.get("max_position_embeddings", 131072)
    is_unlimited = window is None or (
        isinstance(window, int) and isinstance(context, int) and window >= context
    )
    if architecture is Architecture.MISTRAL and not is_unlimited:
        message = (
            f'sliding_window {shown(window)} is not supported; a Mistral model needs `"sliding_window": null`'
        )
        fields.note(unsupported, message, "sliding_window")
    layer_types = raw.get("layer_types")
    if isinstance(layer_types, list) and any(kind != "full_attention" for kind in layer_types):
        fields.note(unsupported, "layer_types other than full_attention are not supported", "layer_types")


def _dtype(fields: Fields) -> str:
    """`dtype` is the new name of `torch_dtype`. What the maker says; the tensors' own types decide."""
    said = fields.raw.get("dtype") or fields.raw.get("torch_dtype") or "float32"
    return said.removeprefix("torch.") if isinstance(said, str) else "float32"


def _rope(fields: Fields, context: int) -> Rope:
    """`rope_scaling` (with `type` or `rope_type`) and `rope_parameters`, as transformers reads them."""
    raw = fields.raw
    name = "rope_scaling" if raw.get("rope_scaling") else "rope_parameters"
    stated = raw.get(name) or {}
    if not isinstance(stated, Mapping):
        fields.note(ProblemCode.BAD_CONFIG, f"{name} must be an object", name)
        return Rope()
    inner = fields.nested(stated, name)
    theta = inner.positive("rope_theta", absent=fields.positive("rope_theta", absent=10000.0))
    partial = stated.get("partial_rotary_factor", raw.get("partial_rotary_factor"))
    if partial not in (None, 1, 1.0):
        fields.note(
            ProblemCode.UNSUPPORTED_CONFIG,
            f"partial_rotary_factor {shown(partial)} is not supported; 1.0 is",
            "partial_rotary_factor",
        )
    kind = stated.get("rope_type", stated.get("type", "default"))
    if kind == "default":
        return Rope(theta)
    if kind == "linear":
        return Rope(theta, RopeKind.LINEAR, factor=inner.positive("factor"))
    if kind == "llama3":
        return _llama3(fields, inner, theta, context)
    message = f"{name}: rope_type {shown(kind)} is not supported; default, linear and llama3 are"
    fields.note(ProblemCode.UNSUPPORTED_CONFIG, message, f"{name}.rope_type")
    return Rope(theta)


def _llama3(fields: Fields, inner: Fields, theta: float, context: int) -> Rope:
    outer = fields.raw.get("original_max_position_embeddings")
    source = fields if outer is not None else inner
    low, high = inner.positive("low_freq_factor"), inner.positive("high_freq_factor")
    if low >= high:
        message = f"low_freq_factor {low} must be below high_freq_factor {high}"
        inner.note(ProblemCode.BAD_CONFIG, message, "low_freq_factor")
    return Rope(
        theta,
        RopeKind.LLAMA3,
        factor=inner.positive("factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_position_embeddings=source.integer_or(
            "original_max_position_embeddings", 1, MAX_CONTEXT, absent=context
        ),
    )
