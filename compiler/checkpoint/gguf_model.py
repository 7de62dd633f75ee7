"""A GGUF file of the Llama architecture as our config and canonical names.

Row order: llama.cpp stores q and k with the rows of each head interleaved for its rotation; the tensors named
here carry their number of heads so that the reader can undo it. Source: llama.cpp, `LlamaModel.permute`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping

from compiler.checkpoint.config import (
    MAX_CONTEXT,
    MAX_LAYERS,
    MAX_VOCAB,
    MAX_WIDTH,
    Architecture,
    ModelConfig,
    check_heads,
)
from compiler.checkpoint.errors import CheckpointError, Problem, ProblemCode
from compiler.checkpoint.expected import EMBEDDING, HEAD
from compiler.checkpoint.fields import Fields
from compiler.checkpoint.gguf import GgufFile, GgufValue
from compiler.checkpoint.rope import Rope, RopeKind
from compiler.checkpoint.strict_json import shown

READABLE_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1")
ROPE_DIVISORS = "rope_freqs.weight"
_TOP = {
    "token_embd": EMBEDDING.removesuffix(".weight"),
    "output_norm": "model.norm",
    "output": HEAD.removesuffix(".weight"),
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BLOCK = re.compile(r"blk\.(0|[1-9]\d{0,4})\.(\w+)\.(weight|bias)")
_FILE_DTYPES = {0: "float32", 1: "float16", 32: "bfloat16"}


def canonical_name(name: str) -> str | None:
    """Hugging Face's name of a ggml tensor of the Llama architecture, or none."""
    stem, _, suffix = name.rpartition(".")
    if stem in _TOP and suffix in ("weight", "bias"):
        return f"{_TOP[stem]}.{suffix}"
    match = _BLOCK.fullmatch(name)
    if match is None or match[2] not in _LAYER:
        return None
    return f"model.layers.{match[1]}.{_LAYER[match[2]]}.{match[3]}"


def interleaved_heads(name: str, config: ModelConfig) -> int:
    """Heads whose rows llama.cpp interleaved in the tensor with this canonical name; 0 for none."""
    if ".self_attn.q_proj." in name:
        return config.num_attention_heads
    return config.num_key_value_heads if ".self_attn.k_proj." in name else 0


def config_from_gguf(file: GgufFile, where: str, divisors: bytes | None = None) -> ModelConfig:
    """Read the model's sizes from GGUF metadata. `divisors`: the bytes of `rope_freqs.weight`, if at hand.

    Raises:
        CheckpointError: every fault at once: `unknown_architecture`, `unsupported_config`, `bad_config`.
    """
    architecture = file.metadata.get("general.architecture")
    if architecture != "llama":
        message = f"{where}: architecture {shown(architecture)} is not supported; llama is"
        raise CheckpointError([Problem(ProblemCode.UNKNOWN_ARCHITECTURE, message, "general.architecture")])
    fields = Fields(_without_prefix(file.metadata), where)
    _refuse_unbuilt(fields)
    hidden = fields.integer("embedding_length", 1, MAX_WIDTH)
    heads = fields.integer("attention.head_count", 1, MAX_WIDTH)
    head_dim = fields.integer_or("attention.key_length", 1, MAX_WIDTH, absent=hidden // heads)
    vocabulary = file.metadata.get("tokenizer.ggml.tokens")
    size = len(vocabulary) if isinstance(vocabulary, list) and vocabulary else 1
    config = ModelConfig(
        architecture=Architecture.LLAMA,
        vocab_size=_vocab_size(fields, file, size),
        hidden_size=hidden,
        intermediate_size=fields.integer("feed_forward_length", 1, MAX_WIDTH),
        num_hidden_layers=fields.integer("block_count", 1, MAX_LAYERS),
        num_attention_heads=heads,
        num_key_value_heads=fields.integer_or("attention.head_count_kv", 1, MAX_WIDTH, absent=heads),
        head_dim=head_dim,
        rms_norm_eps=fields.positive("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=fields.integer("context_length", 1, MAX_CONTEXT),
        rope=_rope(fields, file, head_dim, divisors),
        tie_word_embeddings="output.weight" not in file.tensors,
        attention_bias="blk.0.attn_q.bias" in file.tensors,
        mlp_bias="blk.0.ffn_down.bias" in file.tensors,
        dtype=_dtype(file.metadata.get("general.file_type")),
        bos_token_id=fields.token("tokenizer.ggml.bos_token_id", absent=None),
        eos_token_ids=_stop_ids(fields),
    )
    check_heads(config, fields)
    fields.finish()
    return config


def _without_prefix(metadata: Mapping[str, GgufValue]) -> dict[str, object]:
    """`llama.x` under the name `x`; a list of equal numbers (one a layer) as that number."""
    flat: dict[str, object] = {}
    for key, value in metadata.items():
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]
        flat[key.removeprefix("llama.")] = value
    return flat


def _refuse_unbuilt(fields: Fields) -> None:
    unsupported = ProblemCode.UNSUPPORTED_CONFIG
    if fields.raw.get("expert_count"):
        fields.note(unsupported, "mixture-of-experts models are not supported", "llama.expert_count")
    scaling = fields.raw.get("rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        message = f"rope scaling {shown(scaling)} is not supported; none, linear and rope_freqs are"
        fields.note(unsupported, message, "llama.rope.scaling.type")
    key, value = fields.raw.get("attention.key_length"), fields.raw.get("attention.value_length")
    if key != value:
        message = f"key_length {shown(key)} and value_length {shown(value)} must be equal"
        fields.note(unsupported, message, "llama.attention.value_length")
    if fields.raw.get("attention.sliding_window"):
        fields.note(
            unsupported, "sliding-window attention is not supported", "llama.attention.sliding_window"
        )


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
        fields.note(ProblemCode.UNSUPPORTED_CONFIG, message, "llama.rope.dimension_count")
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
