"""Names and shapes that a config promises. The zoo takes its parameters' names and shapes from here."""

from __future__ import annotations

from compiler.checkpoint.config import Architecture, ModelConfig

Shape = tuple[int, ...]
HEAD = "lm_head.weight"
_EMBEDDING = "model.embed_tokens.weight"
_GPT2_EMBEDDING = "transformer.wte.weight"
_BUFFERS = (".rotary_emb.inv_freq", ".rotary_emb.cos_cached", ".rotary_emb.sin_cached")
_GPT2_BUFFERS = (".attn.bias", ".attn.masked_bias")


def embedding_name(config: ModelConfig) -> str:
    """The token embedding, to which a tied head is equal."""
    return _GPT2_EMBEDDING if config.architecture is Architecture.GPT2 else _EMBEDDING


def body_prefix(config: ModelConfig) -> str:
    """Before every name but the head's; checkpoints of the body alone leave it out."""
    return embedding_name(config).partition(".")[0] + "."


def expected_tensors(config: ModelConfig) -> dict[str, Shape]:
    """Every tensor the model needs, under Hugging Face's names; a tied head is not among them."""
    table = (config.vocab_size, config.hidden_size)
    tensors: dict[str, Shape] = {embedding_name(config): table}
    if config.architecture is Architecture.GPT2:
        tensors.update(_gpt2(config))
    else:
        for layer in range(config.num_hidden_layers):
            tensors.update(_layer(config, f"model.layers.{layer}."))
        tensors["model.norm.weight"] = (config.hidden_size,)
    if not config.tie_word_embeddings:
        tensors[HEAD] = table
    return tensors


def is_ignored(name: str) -> bool:
    """Buffers that old checkpoints stored and every loader recomputes."""
    return name.endswith(_BUFFERS) or (name.startswith("transformer.h.") and name.endswith(_GPT2_BUFFERS))


def _layer(config: ModelConfig, prefix: str) -> dict[str, Shape]:
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    inputs = {"q_proj": (queries, hidden), "k_proj": (keys, hidden), "v_proj": (keys, hidden)}
    mlp = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
    tensors: dict[str, Shape] = {f"{prefix}input_layernorm.weight": (hidden,)}
    tensors.update(_linears(f"{prefix}self_attn.", inputs, config.attention_bias))
    tensors.update(_linears(f"{prefix}self_attn.", {"o_proj": (hidden, queries)}, config.output_bias))
    if config.architecture is Architecture.QWEN3:
        tensors |= {f"{prefix}self_attn.{name}_norm.weight": (config.head_dim,) for name in "qk"}
    tensors[f"{prefix}post_attention_layernorm.weight"] = (hidden,)
    if config.architecture is Architecture.GEMMA2:
        tensors |= {f"{prefix}{side}_feedforward_layernorm.weight": (hidden,) for side in ("pre", "post")}
    tensors.update(_linears(f"{prefix}mlp.", mlp, config.mlp_bias))
    return tensors


def _gpt2(config: ModelConfig) -> dict[str, Shape]:
    hidden, inner = config.hidden_size, config.intermediate_size
    tensors: dict[str, Shape] = {"transformer.wpe.weight": (config.max_position_embeddings, hidden)}
    linears = {
        "attn.c_attn": (3 * hidden, hidden),
        "attn.c_proj": (hidden, hidden),
        "mlp.c_fc": (inner, hidden),
        "mlp.c_proj": (hidden, inner),
    }
    for layer in range(config.num_hidden_layers):
        prefix = f"transformer.h.{layer}."
        tensors.update(_norm(f"{prefix}ln_1", hidden) | _norm(f"{prefix}ln_2", hidden))
        tensors.update(_linears(prefix, linears, has_bias=True, is_in_out=config.stores_in_out))
    return tensors | _norm("transformer.ln_f", hidden)


def _norm(name: str, hidden: int) -> dict[str, Shape]:
    return {f"{name}.weight": (hidden,), f"{name}.bias": (hidden,)}


def _linears(
    prefix: str, shapes: dict[str, tuple[int, int]], has_bias: bool, is_in_out: bool = False
) -> dict[str, Shape]:
    """`shapes` are [out, in]; so are the weights, unless `is_in_out`."""
    tensors: dict[str, Shape] = {}
    for name, shape in shapes.items():
        tensors[f"{prefix}{name}.weight"] = shape[::-1] if is_in_out else shape
        if has_bias:
            tensors[f"{prefix}{name}.bias"] = shape[:1]
    return tensors
