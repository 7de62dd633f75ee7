"""The tiny Llamas of `tiny_checkpoints` as GGUF files, laid out as llama.cpp's converter does.

`write_tiny_gguf(path, "gqa", "Q8_0")`: matrices in the given type, norms and biases in F32, rows of q and k
interleaved, tokenizer and chat template in the metadata.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import gguf
import numpy as np

from tests.support.tiny_checkpoints import (
    CHATML,
    SPECIAL_TOKENS,
    TINY,
    TinyLlama,
    tiny_tensors,
    write_tiny_tokenizer,
)

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_tiny_gguf(path: Path, variant: str | TinyLlama = "gqa", dtype: str = "F16", seed: int = 0) -> Path:
    """Write the variant with the weights of `tiny_tensors(variant, seed)`, quantised to `dtype`."""
    spec = TINY[variant] if isinstance(variant, str) else variant
    writer = gguf.GGUFWriter(path, "llama")
    _add_model(writer, spec)
    add_tokenizer(writer, pre="smollm", eos=spec.eos if isinstance(spec.eos, int) else spec.eos[0])
    for name, array in tiny_tensors(spec, seed).items():
        kind = gguf.GGMLQuantizationType[dtype] if array.ndim == 2 else gguf.GGMLQuantizationType.F32
        stored = gguf.quantize(_permuted(name, array, spec), kind)
        writer.add_tensor(ggml_name(name), stored, raw_dtype=kind)
    if spec.rope_scaling and spec.rope_scaling.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(spec))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def ggml_name(name: str) -> str:
    """llama.cpp's name of a tensor."""
    stem, _, suffix = name.rpartition(".")
    if stem.startswith("model.layers."):
        layer, _, rest = stem.removeprefix("model.layers.").partition(".")
        return f"blk.{layer}.{_NAMES[rest]}.{suffix}"
    return f"{_NAMES[stem]}.{suffix}"


def llama3_divisors(spec: TinyLlama) -> np.ndarray:
    """What llama.cpp's converter computes for llama3 scaling: a divisor for each frequency."""
    scaling = spec.rope_scaling
    assert scaling is not None
    factor, low, high = scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"]
    original = scaling["original_max_position_embeddings"]
    frequencies = 1.0 / spec.rope_theta ** (np.arange(0, spec.width, 2) / spec.width)
    waves = 2 * np.pi / frequencies
    smooth = (original / waves - low) / (high - low)
    between = 1.0 / ((1 - smooth) / factor + smooth)
    divisors = np.where(waves < original / high, 1.0, np.where(waves > original / low, factor, between))
    return divisors.astype(np.float32)


def _permuted(name: str, array: np.ndarray, spec: TinyLlama) -> np.ndarray:
    """Rows of each head interleaved. Source: llama.cpp's `LlamaModel.permute`."""
    heads = spec.heads if ".q_proj." in name else spec.kv_heads
    if ".q_proj." not in name and ".k_proj." not in name:
        return array
    halves = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(array.shape)


def _add_model(writer: gguf.GGUFWriter, spec: TinyLlama) -> None:
    writer.add_block_count(spec.layers)
    writer.add_context_length(spec.context)
    writer.add_embedding_length(spec.hidden)
    writer.add_feed_forward_length(spec.intermediate)
    writer.add_head_count(spec.heads)
    writer.add_head_count_kv(spec.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(spec.rope_theta)
    writer.add_rope_dimension_count(spec.width)
    writer.add_vocab_size(512)
    if spec.head_dim is not None:
        writer.add_key_length(spec.head_dim)
        writer.add_value_length(spec.head_dim)
    if spec.rope_scaling and spec.rope_scaling.get("type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(spec.rope_scaling["factor"])


def add_tokenizer(writer: gguf.GGUFWriter, *, pre: str, eos: int) -> None:
    """The tiny tokenizer, with its chat template; `pre` names how text is split before merges."""
    with tempfile.TemporaryDirectory() as folder:
        write_tiny_tokenizer(Path(folder))
        model = json.loads((Path(folder) / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([control if token in SPECIAL_TOKENS else normal for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(eos)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHATML)
