"""transformers as the oracle for the tiny families: the same config and tensors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PretrainedConfig

from tests.support.tiny_families import FAMILIES


def family_config(name: str) -> PretrainedConfig:
    """transformers' reading of the family's config."""
    raw = {k: v for k, v in FAMILIES[name].items() if k != "architectures"}
    return CONFIG_MAPPING[raw.pop("model_type")](**raw)


def family_model(
    name: str, tensors: Mapping[str, np.ndarray], dtype: torch.dtype = torch.float32
) -> torch.nn.Module:
    """transformers' model with `tensors` (float32, Hugging Face's names) for weights."""
    config = family_config(name)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    state = {key: torch.from_numpy(tensor) for key, tensor in tensors.items()}
    found = model.load_state_dict(state, strict=False)
    tied = ["lm_head.weight"] if config.tie_word_embeddings else []
    assert (found.missing_keys, found.unexpected_keys) == (tied, []), found
    model.tie_weights()
    return model.to(dtype).eval()
