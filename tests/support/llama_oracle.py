"""transformers as the oracle for a tiny Llama: the same config and tensors, in float32 or float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from tests.support.tiny_checkpoints import TinyLlama, tiny_config


def oracle_model(
    spec: TinyLlama, tensors: Mapping[str, np.ndarray], dtype: torch.dtype = torch.float32
) -> torch.nn.Module:
    """transformers' model of `spec` with `tensors` (float32, Hugging Face's names) for weights."""
    is_llama = spec.architecture.startswith("Llama")
    config_class, model_class = (
        (LlamaConfig, LlamaForCausalLM) if is_llama else (MistralConfig, MistralForCausalLM)
    )
    raw = {k: v for k, v in tiny_config(spec).items() if k not in ("architectures", "torch_dtype")}
    model = model_class(config_class(**raw, attn_implementation="eager"))
    state = {name: torch.from_numpy(tensor) for name, tensor in tensors.items()}
    missing = model.load_state_dict(state, strict=False).missing_keys
    assert missing == (["lm_head.weight"] if spec.tied else []), missing
    model.tie_weights()
    return model.to(dtype).eval()


def oracle_logits(model: torch.nn.Module, sequences: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Logits [positions, vocab] of each sequence by itself, as float64."""
    with torch.no_grad():
        return [model(torch.tensor([list(s)])).logits[0].double().numpy() for s in sequences]
