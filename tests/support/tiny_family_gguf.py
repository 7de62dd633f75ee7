"""The tiny families as GGUF files, laid out as llama.cpp's converter does.

Matrices in F32 or another type, the rest in F32; Gemma's norms with their one added, GPT-2's matrices turned
to [out, in], rows of q and k as they are. Tokenizer and chat template stand in the metadata.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from compiler.checkpoint import ModelConfig, config_from_hf
from tests.support.tiny_families import FAMILIES, family_tensors
from tests.support.tiny_gguf import add_tokenizer

_ATTENTION = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_LLAMA = {**_ATTENTION, "post_attention_layernorm": "ffn_norm"}
_LAYERS = {
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "gemma2": {
        **_ATTENTION,
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    },
    "gpt2": {
        "ln_1": "attn_norm",
        "attn.c_attn": "attn_qkv",
        "attn.c_proj": "attn_output",
        "ln_2": "ffn_norm",
        "mlp.c_fc": "ffn_up",
        "mlp.c_proj": "ffn_down",
    },
}
_TOP = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
}
_PRE = {"qwen2": "qwen2", "qwen3": "qwen2", "gpt2": "gpt-2", "gemma2": "smollm"}


def write_tiny_family_gguf(path: Path, name: str, dtype: str = "F32", seed: int = 0) -> Path:
    """Write the family `name` with the weights of `family_tensors(name, seed)`; answer the file."""
    raw = FAMILIES[name]
    kind, config = str(raw["model_type"]), config_from_hf(raw)
    writer = gguf.GGUFWriter(path, kind)
    _add_model(writer, kind, config, raw)
    add_tokenizer(writer, pre=_PRE[kind], eos=2)
    for tensor, array in as_stored(name, seed).items():
        wanted = gguf.GGMLQuantizationType[dtype] if array.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(ggml_name(kind, tensor), gguf.quantize(array, wanted), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def as_stored(name: str, seed: int = 0) -> dict[str, np.ndarray]:
    """What the file holds, under Hugging Face's names."""
    kind = FAMILIES[name]["model_type"]
    return {tensor: _stored(kind, tensor, array) for tensor, array in family_tensors(name, seed).items()}


def ggml_name(kind: str, name: str) -> str:
    """llama.cpp's name of a tensor."""
    stem, _, suffix = name.rpartition(".")
    if stem in _TOP:
        return f"{_TOP[stem]}.{suffix}"
    layer, _, rest = stem.removeprefix("model.layers.").removeprefix("transformer.h.").partition(".")
    return f"blk.{layer}.{_LAYERS[kind][rest]}.{suffix}"


def _stored(kind: str, name: str, array: np.ndarray) -> np.ndarray:
    if kind == "gemma2" and name.endswith("norm.weight"):
        return array + np.float32(1)
    is_turned = kind == "gpt2" and array.ndim == 2 and ".h." in name
    return np.ascontiguousarray(array.T) if is_turned else array


def _add_model(writer: gguf.GGUFWriter, kind: str, config: ModelConfig, raw: dict[str, Any]) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    if kind == "gpt2":
        writer.add_layer_norm_eps(config.rms_norm_eps)
        return
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(raw["rope_theta"])
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    if kind == "gemma2":
        writer.add_attn_logit_softcapping(config.attention_softcap or 0.0)
        writer.add_final_logit_softcapping(config.final_softcap or 0.0)
        writer.add_sliding_window(raw["sliding_window"])
