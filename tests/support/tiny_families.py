"""Random checkpoints of the families beside Llama, in Hugging Face form, with tokenizer and chat template.

Needs numpy and tokenizers only, so that service tests can write one without importing torch.
`write_tiny_family(dir, "gemma2")` is the whole interface; `FAMILIES` lists the configs, each with a context
of 256 positions and windows that a test crosses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from compiler.checkpoint import config_from_hf, expected_tensors
from tests.support.tiny_checkpoints import VOCAB_SIZE, write_safetensors, write_tiny_tokenizer

Raw = dict[str, Any]
WINDOW = 24
_SIZES: Raw = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rope_theta": 10000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_QWEN2: Raw = {
    **_SIZES,
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
_QWEN3: Raw = {
    **_SIZES,
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "head_dim": 64,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
_GEMMA2: Raw = {
    **_SIZES,
    "architectures": ["Gemma2ForCausalLM"],
    "model_type": "gemma2",
    "head_dim": 64,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 96,
    "attn_logit_softcapping": 5.0,
    "final_logit_softcapping": 3.0,
    "sliding_window": WINDOW,
}
_GPT2: Raw = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "vocab_size": VOCAB_SIZE,
    "n_embd": 128,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 256,
    "activation_function": "gelu_new",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
FAMILIES: Mapping[str, Raw] = {
    "gpt2": _GPT2,
    "gpt2_gelu": {
        **_GPT2,
        "activation_function": "gelu",
        "n_inner": 192,
        "scale_attn_weights": False,
        "tie_word_embeddings": False,
    },
    "qwen2": _QWEN2,
    "qwen2_window": {
        **_QWEN2,
        "use_sliding_window": True,
        "sliding_window": WINDOW,
        "max_window_layers": 1,
        "tie_word_embeddings": False,
    },
    "qwen3": _QWEN3,
    "qwen3_untied": {**_QWEN3, "tie_word_embeddings": False, "attention_bias": True, "head_dim": 32},
    "gemma2": _GEMMA2,
    "gemma2_plain": {
        **_GEMMA2,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "layer_types": ["full_attention", "sliding_attention"],
        "tie_word_embeddings": False,
    },
    "mistral_window": {
        **_SIZES,
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "sliding_window": WINDOW,
    },
}


def write_tiny_family(directory: Path, name: str, dtype: str = "bfloat16", seed: int = 0) -> Path:
    """Write the family's checkpoint into `directory`; answer it. Equal seeds, equal bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    config = {**FAMILIES[name], "torch_dtype": dtype}
    _write_json(directory / "config.json", config)
    _write_json(
        directory / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    )
    write_tiny_tokenizer(directory)
    write_safetensors(directory / "model.safetensors", family_tensors(name, seed), dtype)
    return directory


def family_tensors(name: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Every tensor as float32: matrices with a deviation that keeps logits apart, norms off their neutral."""
    rng = np.random.default_rng(seed)
    raw = FAMILIES[name]
    neutral = 0.0 if raw["model_type"] == "gemma2" else 1.0
    found: dict[str, np.ndarray] = {}
    for tensor, shape in expected_tensors(config_from_hf(raw)).items():
        values = rng.normal(0.0, 0.1, shape).astype(np.float32)
        is_norm = len(shape) == 1 and tensor.endswith(".weight")
        found[tensor] = values + np.float32(neutral) if is_norm else values
    return found


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
