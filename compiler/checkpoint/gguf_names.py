"""ggml's tensor names, family by family, as Hugging Face's.

Row order: of Llama's own architecture llama.cpp stores q and k with the rows of each head interleaved for its
rotation. Source: llama.cpp, `LlamaModel.permute` and the name maps of its converter.
"""

from __future__ import annotations

import re

from compiler.checkpoint.config import Architecture, ModelConfig
from compiler.checkpoint.expected import HEAD, embedding_name

_ATTENTION = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LLAMA = {**_ATTENTION, "ffn_norm": "post_attention_layernorm"}
_QWEN3 = {**_LLAMA, "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_GEMMA2 = {
    **_ATTENTION,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_GPT2 = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
_LAYERS = {Architecture.QWEN3: _QWEN3, Architecture.GEMMA2: _GEMMA2, Architecture.GPT2: _GPT2}
_BLOCK = re.compile(r"blk\.(0|[1-9]\d{0,4})\.(\w+)\.(weight|bias)")


def canonical_name(name: str, config: ModelConfig) -> str | None:
    """Hugging Face's name of a ggml tensor of the config's family, or none."""
    stem, _, suffix = name.rpartition(".")
    is_gpt2 = config.architecture is Architecture.GPT2
    top = {
        "token_embd": embedding_name(config).removesuffix(".weight"),
        "output_norm": "transformer.ln_f" if is_gpt2 else "model.norm",
        "output": HEAD.removesuffix(".weight"),
        **({"position_embd": "transformer.wpe"} if is_gpt2 else {}),
    }
    if stem in top and suffix in ("weight", "bias"):
        return f"{top[stem]}.{suffix}"
    match = _BLOCK.fullmatch(name)
    layer = _LAYERS.get(config.architecture, _LLAMA)
    if match is None or match[2] not in layer:
        return None
    return f"{'transformer.h' if is_gpt2 else 'model.layers'}.{match[1]}.{layer[match[2]]}.{match[3]}"


def interleaved_heads(name: str, config: ModelConfig) -> int:
    """Heads whose rows llama.cpp interleaved in the tensor with this canonical name; 0 for none."""
    if config.architecture is not Architecture.LLAMA:
        return 0
    if ".self_attn.q_proj." in name:
        return config.num_attention_heads
    return config.num_key_value_heads if ".self_attn.k_proj." in name else 0
