"""Names and shapes that a config promises. The zoo takes its parameters' names and shapes from here."""

from __future__ import annotations

from compiler.checkpoint.config import ModelConfig

Shape = tuple[int, ...]
EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"


def expected_tensors(config: ModelConfig) -> dict[str, Shape]:
    """Every tensor the model needs, under Hugging Face's names; a tied head is not among them."""
    tensors: dict[str, Shape] = {EMBEDDING: (config.vocab_size, config.hidden_size)}
    for layer in range(config.num_hidden_layers):
        tensors.update(_layer(config, f"model.layers.{layer}."))
    tensors["model.norm.weight"] = (config.hidden_size,)
    if not config.tie_word_embeddings:
        tensors[HEAD] = (config.vocab_size, config.hidden_size)
    return tensors


def is_ignored(name: str) -> bool:
    """Buffers that old checkpoints stored and every loader recomputes."""
    return name.endswith((".rotary_emb.inv_freq", ".rotary_emb.cos_cached", ".rotary_emb.sin_cached"))


def _layer(config: ModelConfig, prefix: str) -> dict[str, Shape]:
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    attention = {
        "q_proj": (queries, hidden),
        "k_proj": (keys, hidden),
        "v_proj": (keys, hidden),
        "o_proj": (hidden, queries),
    }
    mlp = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
    tensors: dict[str, Shape] = {f"{prefix}input_layernorm.weight": (hidden,)}
    tensors.update(_linears(f"{prefix}self_attn.", attention, config.attention_bias))
    tensors[f"{prefix}post_attention_layernorm.weight"] = (hidden,)
    tensors.update(_linears(f"{prefix}mlp.", mlp, config.mlp_bias))
    return tensors


def _linears(prefix: str, shapes: dict[str, tuple[int, int]], has_bias: bool) -> dict[str, Shape]:
    tensors: dict[str, Shape] = {}
    for name, shape in shapes.items():
        tensors[f"{prefix}{name}.weight"] = shape
        if has_bias:
            tensors[f"{prefix}{name}.bias"] = shape[:1]
    return tensors
