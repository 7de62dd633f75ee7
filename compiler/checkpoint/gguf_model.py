"""A GGUF file's metadata as our config. The names of its tensors are in `gguf_names.py`."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from compiler.checkpoint.config import (
    MAX_CONTEXT,
    MAX_LAYERS,
    MAX_VOCAB,
    MAX_WIDTH,
    Activation,
    Architecture,
    ModelConfig,
    check_heads,
)
from compiler.checkpoint.errors import CheckpointError, Problem, ProblemCode
from compiler.checkpoint.fields import Fields
from compiler.checkpoint.gguf import GgufFile, GgufValue
from compiler.checkpoint.rope import Rope, RopeKind
from compiler.checkpoint.shared_fields import FULL, SLIDING, layer_windows
from compiler.checkpoint.strict_json import shown

READABLE_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1")
ROPE_DIVISORS = "rope_freqs.weight"
_FILE_DTYPES = {0: "float32", 1: "float16", 32: "bfloat16"}
_ARCHITECTURES = {
    "llama": Architecture.LLAMA,
    "qwen2": Architecture.QWEN2,
    "qwen3": Architecture.QWEN3,
    "gemma2": Architecture.GEMMA2,
    "gpt2": Architecture.GPT2,
}
_GEMMA2_27B_LAYERS = 46
"""The one Gemma 2 whose scores are not scaled by the head's width; the file does not say so."""


def config_from_gguf(file: GgufFile, where: str, divisors: bytes | None = None) -> ModelConfig:
    """Read the model's sizes from GGUF metadata. `divisors`: the bytes of `rope_freqs.weight`, if at hand.

    Raises:
        CheckpointError: every fault at once: `unknown_architecture`, `unsupported_config`, `bad_config`.
    """
    name = file.metadata.get("general.architecture")
    if not isinstance(name, str) or name not in _ARCHITECTURES:
        *others, last = _ARCHITECTURES
        message = f"{where}: architecture {shown(name)} is not supported; {', '.join(others)} and {last} are"
        raise CheckpointError([Problem(ProblemCode.UNKNOWN_ARCHITECTURE, message, "general.architecture")])
    architecture = _ARCHITECTURES[name]
    fields = Fields(_without_prefix(file.metadata, name), where)
    _refuse_unbuilt(fields, architecture)
    hidden = fields.integer("embedding_length", 1, MAX_WIDTH)
    heads = fields.integer("attention.head_count", 1, MAX_WIDTH)
    layers = fields.integer("block_count", 1, MAX_LAYERS)
    context = fields.integer("context_length", 1, MAX_CONTEXT)
    head_dim = fields.integer_or("attention.key_length", 1, MAX_WIDTH, absent=hidden // heads)
    is_gpt2, is_gemma2 = architecture is Architecture.GPT2, architecture is Architecture.GEMMA2
    norm = "layer_norm" if is_gpt2 else "layer_norm_rms"
    vocabulary = file.metadata.get("tokenizer.ggml.tokens")
    size = len(vocabulary) if isinstance(vocabulary, list) and vocabulary else 1
    config = ModelConfig(
        architecture=architecture,
        vocab_size=_vocab_size(fields, file, size),
        hidden_size=hidden,
        intermediate_size=fields.integer("feed_forward_length", 1, MAX_WIDTH),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=fields.integer_or("attention.head_count_kv", 1, MAX_WIDTH, absent=heads),
        head_dim=head_dim,
        rms_norm_eps=fields.positive(f"attention.{norm}_epsilon"),
        max_position_embeddings=context,
        rope=Rope() if is_gpt2 else _rope(fields, file, head_dim, divisors),
        tie_word_embeddings="output.weight" not in file.tensors,
        attention_bias=is_gpt2 or "blk.0.attn_q.bias" in file.tensors,
        output_bias=is_gpt2 or "blk.0.attn_output.bias" in file.tensors,
        mlp_bias=is_gpt2 or "blk.0.ffn_down.bias" in file.tensors,
        activation=Activation.GELU_TANH if is_gpt2 or is_gemma2 else Activation.SILU,
        windows=_gemma2_windows(fields, layers, context) if is_gemma2 else (),
        query_scale=(hidden // heads) ** -0.5 if is_gemma2 and layers == _GEMMA2_27B_LAYERS else None,
        attention_softcap=_softcap(fields, "attn_logit_softcapping", 50.0) if is_gemma2 else None,
        final_softcap=_softcap(fields, "final_logit_softcapping", 30.0) if is_gemma2 else None,
        dtype=_dtype(file.metadata.get("general.file_type")),
        bos_token_id=fields.token("tokenizer.ggml.bos_token_id", absent=None),
        eos_token_ids=_stop_ids(fields),
    )
    check_heads(config, fields)
    fields.finish()
    return config


def _gemma2_windows(fields: Fields, layers: int, context: int) -> tuple[int | None, ...]:
    """Every other layer, from the first. Source: llama.cpp's `llm_build_gemma2`."""
    window = fields.integer_or("attention.sliding_window", 1, MAX_CONTEXT, absent=4096)
    kinds = tuple(FULL if layer % 2 else SLIDING for layer in range(layers))
    return layer_windows(fields, window, context, kinds)


def _softcap(fields: Fields, name: str, absent: float) -> float | None:
    """A soft cap; 0 says that there is none."""
    return None if fields.raw.get(name) == 0 else fields.positive(name, absent)


def _without_prefix(metadata: Mapping[str, GgufValue], prefix: str) -> dict[str, object]:
    """`prefix.x` under the name `x`; a list of equal numbers (one a layer) as that number."""
    flat: dict[str, object] = {}
    for key, value in metadata.items():
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]
        flat[key.removeprefix(f"{prefix}.")] = value
    return flat


def _refuse_unbuilt(fields: Fields, architecture: Architecture) -> None:
    unsupported = ProblemCode.UNSUPPORTED_CONFIG
    if fields.raw.get("expert_count"):
        fields.note(unsupported, "mixture-of-experts models are not supported", "expert_count")
    scaling = fields.raw.get("rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        message = f"rope scaling {shown(scaling)} is not supported; none, linear and rope_freqs are"
        fields.note(unsupported, message, "rope.scaling.type")
    key, value = fields.raw.get("attention.key_length"), fields.raw.get("attention.value_length")
    if key != value:
        message = f"key_length {shown(key)} and value_length {shown(value)} must be equal"
        fields.note(unsupported, message, "attention.value_length")
    if fields.raw.get("attention.sliding_window") and architecture is not Architecture.GEMMA2:
        fields.note(unsupported, "sliding-window attention is not supported", "attention.sliding_window")


def _vocab_size(fields: Fields, file: GgufFile, tokens: int) -> int:
    """The embedding's rows; metadata may count fewer."""
    embedding = file.tensors.get("token_embd.weight")
    rows = embedding.shape[0] if embedding and embedding.shape else tokens
    return fields.integer_or("vocab_size", 1, MAX_VOCAB, absent=min(max(rows, 1), MAX_VOCAB))


def _rope(fields: Fields, file: GgufFile, head_dim: int, divisors: bytes | None) -> Rope:
    theta = fields.positive("rope.freq_base", absent=10000.0)
    rotated = fields.integer_or("rope.dimension_count", 1, MAX_WIDTH, absent=head_dim)
    if rotated != head_dim:
        message = f"rope.dimension_count {rotated} must equal the head size {head_dim}"
        fields.note(ProblemCode.UNSUPPORTED_CONFIG, message, "rope.dimension_count")
    if ROPE_DIVISORS in file.tensors:
        return _divided(fields, file, theta, head_dim, divisors)
    name = "rope.scaling.factor" if fields.has("rope.scaling.factor") else "rope.scale_linear"
    factor = fields.positive(name, absent=1.0)
    if fields.raw.get("rope.scaling.type") == "linear" or (name == "rope.scale_linear" and factor != 1.0):
        return Rope(theta, RopeKind.LINEAR, factor=factor)
    return Rope(theta)


def _divided(fields: Fields, file: GgufFile, theta: float, head_dim: int, divisors: bytes | None) -> Rope:
    """Frequencies with a divisor each. Without the bytes (triage sees headers only) all are 1."""
    entry = file.tensors[ROPE_DIVISORS]
    if entry.dtype != "F32" or entry.shape != (head_dim // 2,):
        message = f"{ROPE_DIVISORS} must be F32 of shape ({head_dim // 2},), not {entry.dtype} {entry.shape}"
        fields.note(ProblemCode.WRONG_SHAPE, message, ROPE_DIVISORS)
        return Rope(theta)
    if divisors is None:
        return Rope(theta, RopeKind.DIVISORS, divisors=(1.0,) * (head_dim // 2))
    values = struct.unpack(f"<{head_dim // 2}f", divisors)
    if not all(0 < value < 1e30 for value in values):
        fields.note(ProblemCode.BAD_CONFIG, f"{ROPE_DIVISORS} must hold numbers above 0", ROPE_DIVISORS)
        return Rope(theta)
    return Rope(theta, RopeKind.DIVISORS, divisors=values)


def _dtype(file_type: object) -> str:
    return _FILE_DTYPES.get(file_type, "float32") if isinstance(file_type, int) else "float32"


def _stop_ids(fields: Fields) -> tuple[int, ...]:
    names = ("eos_token_id", "eot_token_id", "eom_token_id")
    ids = [fields.token(f"tokenizer.ggml.{name}", absent=None) for name in names]
    return tuple(dict.fromkeys(i for i in ids if i is not None))
