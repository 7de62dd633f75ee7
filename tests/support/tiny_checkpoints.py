"""Random Llama checkpoints of about 1 MB, complete with tokenizer and chat template, in Hugging Face form.

Needs numpy and tokenizers only, so that service tests can write one without importing torch.
`write_tiny_checkpoint(dir, "gqa")` is the whole interface; `TINY` lists the variants.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB_SIZE = 512
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_CORPUS = (
    "The quick brown fox jumps over the lazy dog. What is the capital of France? The capital is Paris.",
    "Once upon a time there was a small model that could read, write and count: 1 2 3 10 42 1999 2024.",
    "Please answer the question briefly and explain why. The platform compiles each checkpoint ahead.",
    "Weather in London today: cloudy with sunshine later, temperature between twelve and fifteen degrees.",
    "The user asked about machine learning, language models, tokens, attention, memory and batching.",
    "def add(left, right):\n    return left + right\n\nprint(add(1, 2))  # prints 3\n",
    "Le café était déjà fermé. Größe, naïve, señor, Привет мир, 你好世界, こんにちは, مرحبا, 😀🎉",
)


@dataclass(frozen=True, slots=True)
class TinyLlama:
    """What a variant's config says; the defaults are multi-head attention with an untied head."""

    layers: int = 2
    hidden: int = 128
    heads: int = 4
    kv_heads: int = 4
    head_dim: int | None = None
    intermediate: int = 256
    tied: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    rope_theta: float = 10000.0
    rope_scaling: Mapping[str, Any] | None = None
    shards: int = 1
    dtype: str = "bfloat16"
    architecture: str = "LlamaForCausalLM"
    context: int = 256
    eos: int | list[int] = 2
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def width(self) -> int:
        return self.head_dim or self.hidden // self.heads


_GQA = TinyLlama(kv_heads=2, tied=True)
TINY: Mapping[str, TinyLlama] = {
    "plain": TinyLlama(),
    "gqa": _GQA,
    "untied": replace(_GQA, tied=False),
    "biases": replace(_GQA, attention_bias=True, mlp_bias=True),
    "odd_heads": replace(_GQA, heads=3, kv_heads=1, hidden=96),
    "head_dim": replace(_GQA, head_dim=64),
    "rope_linear": replace(_GQA, rope_scaling={"type": "linear", "factor": 4.0}),
    "rope_llama3": replace(_GQA, rope_theta=500000.0, rope_scaling=LLAMA3_ROPE, context=512, eos=[2, 0]),
    "sharded": replace(_GQA, tied=False, shards=3),
    "mistral": replace(_GQA, architecture="MistralForCausalLM", tied=False, extra={"sliding_window": None}),
    "f32": replace(_GQA, dtype="float32"),
    "f16": replace(_GQA, dtype="float16"),
}


def write_tiny_checkpoint(directory: Path, variant: str | TinyLlama = "gqa", seed: int = 0) -> Path:
    """Write config, weights, tokenizer and generation config into `directory`; answer it.

    Weights are normal with a deviation that keeps the logits apart, norms near 1; equal seeds, equal bytes.
    """
    spec = TINY[variant] if isinstance(variant, str) else variant
    directory.mkdir(parents=True, exist_ok=True)
    _write_json(directory / "config.json", tiny_config(spec))
    _write_json(
        directory / "generation_config.json",
        {"bos_token_id": 1, "eos_token_id": spec.eos, "pad_token_id": 0, "transformers_version": "4.51.0"},
    )
    write_tiny_tokenizer(directory)
    _write_weights(directory, spec, tiny_tensors(spec, seed))
    return directory


def tiny_config(spec: TinyLlama) -> dict[str, Any]:
    """The variant's config.json in the dialect that most published checkpoints use."""
    config: dict[str, Any] = {
        "architectures": [spec.architecture],
        "model_type": "llama" if spec.architecture.startswith("Llama") else "mistral",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": spec.hidden,
        "intermediate_size": spec.intermediate,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "hidden_act": "silu",
        "max_position_embeddings": spec.context,
        "rms_norm_eps": 1e-5,
        "rope_theta": spec.rope_theta,
        "rope_scaling": dict(spec.rope_scaling) if spec.rope_scaling else None,
        "tie_word_embeddings": spec.tied,
        "attention_bias": spec.attention_bias,
        "mlp_bias": spec.mlp_bias,
        "bos_token_id": 1,
        "eos_token_id": spec.eos,
        "torch_dtype": spec.dtype,
        **spec.extra,
    }
    if spec.head_dim is not None:
        config["head_dim"] = spec.head_dim
    return config


def tiny_tensors(spec: TinyLlama, seed: int = 0) -> dict[str, np.ndarray]:
    """Every tensor of the variant as float32, under Hugging Face's names."""
    rng = np.random.default_rng(seed)
    q, kv = spec.heads * spec.width, spec.kv_heads * spec.width
    projections = {
        "self_attn.q_proj": (q, spec.hidden, spec.attention_bias),
        "self_attn.k_proj": (kv, spec.hidden, spec.attention_bias),
        "self_attn.v_proj": (kv, spec.hidden, spec.attention_bias),
        "self_attn.o_proj": (spec.hidden, q, spec.attention_bias),
        "mlp.gate_proj": (spec.intermediate, spec.hidden, spec.mlp_bias),
        "mlp.up_proj": (spec.intermediate, spec.hidden, spec.mlp_bias),
        "mlp.down_proj": (spec.hidden, spec.intermediate, spec.mlp_bias),
    }

    def matrix(rows: int, columns: int) -> np.ndarray:
        return rng.normal(0.0, 0.1, (rows, columns)).astype(np.float32)

    def norm() -> np.ndarray:
        return (1.0 + rng.normal(0.0, 0.1, spec.hidden)).astype(np.float32)

    tensors = {"model.embed_tokens.weight": matrix(VOCAB_SIZE, spec.hidden)}
    for layer in range(spec.layers):
        prefix = f"model.layers.{layer}."
        tensors[prefix + "input_layernorm.weight"] = norm()
        tensors[prefix + "post_attention_layernorm.weight"] = norm()
        for name, (rows, columns, has_bias) in projections.items():
            tensors[f"{prefix}{name}.weight"] = matrix(rows, columns)
            if has_bias:
                tensors[f"{prefix}{name}.bias"] = rng.normal(0.0, 0.1, rows).astype(np.float32)
    tensors["model.norm.weight"] = norm()
    if not spec.tied:
        tensors["lm_head.weight"] = matrix(VOCAB_SIZE, spec.hidden)
    return tensors


def write_tiny_tokenizer(directory: Path, chat_template: str = CHATML) -> None:
    """Train a 512-token byte-level BPE (digits one by one) and save it with a chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=1,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    assert tokenizer.get_vocab_size() == VOCAB_SIZE, "the corpus must fill the vocabulary"
    tokenizer.save(str(directory / "tokenizer.json"))
    _write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "unk_token": "<|endoftext|>",
            "clean_up_tokenization_spaces": False,
            "model_max_length": 256,
            "chat_template": chat_template,
        },
    )


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray], dtype: str) -> int:
    """Write float32 arrays as `dtype` in the safetensors format; answer the bytes of tensor data."""
    tag = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}[dtype]
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data, end = [], 0
    for name, array in tensors.items():
        data.append(_encode(array, dtype))
        start, end = end, end + len(data[-1])
        header[name] = {"dtype": tag, "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data))
    return end


def _write_weights(directory: Path, spec: TinyLlama, tensors: dict[str, np.ndarray]) -> None:
    if spec.shards == 1:
        write_safetensors(directory / "model.safetensors", tensors, spec.dtype)
        return
    names = list(tensors)
    total, weight_map = 0, {}
    for shard in range(spec.shards):
        file = f"model-{shard + 1:05d}-of-{spec.shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[shard :: spec.shards]}
        total += write_safetensors(directory / file, part, spec.dtype)
        weight_map.update(dict.fromkeys(part, file))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    _write_json(directory / "model.safetensors.index.json", index)


def _encode(array: np.ndarray, dtype: str) -> bytes:
    if dtype == "float32":
        return array.astype("<f4").tobytes()
    if dtype == "float16":
        return array.astype("<f2").tobytes()
    assert dtype == "bfloat16", dtype
    bits = array.astype("<f4").view("<u4")
    rounded: np.ndarray = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return rounded.astype("<u2").tobytes()


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
