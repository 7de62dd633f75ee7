"""A small sentencepiece-style BPE with byte fallback, as a tokenizer.json and as GGUF metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import SentencePieceBPETokenizer

_CORPUS = [
    "The quick brown fox jumps over the lazy dog. The capital of France is Paris.",
    "Once upon a time there was a small model that could read, write and count: 1 2 3 10 42 1999 2024.",
    "Please answer the question briefly and explain why. The platform compiles each checkpoint ahead.",
    "def add(left, right): return left + right # prints 3 <s> </s> [INST] hello [/INST]",
    "Le café était déjà fermé. Größe, naïve, señor, Привет мир",
]
CONTROL = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def spm_vocabulary() -> tuple[list[str], list[float], list[list[str]]]:
    """Tokens by id (control, bytes, merged, characters), their scores, and the merges they come from."""
    trained = SentencePieceBPETokenizer()
    trained.train_from_iterator(_CORPUS, vocab_size=500, min_frequency=1, show_progress=False)
    model = json.loads(trained.to_str())["model"]
    merged = list(dict.fromkeys("".join(pair) for pair in model["merges"]))
    characters = sorted(token for token in model["vocab"] if len(token) == 1)
    tokens = CONTROL + BYTES + merged + characters
    scores = [0.0] * (len(CONTROL) + len(BYTES)) + [-float(i) for i in range(len(merged) + len(characters))]
    return tokens, scores, model["merges"]


def spm_metadata(**changes: Any) -> dict[str, Any]:
    """The tokenizer part of a GGUF file's metadata."""
    tokens, scores, _ = spm_vocabulary()
    types = [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259)
    return {
        "general.architecture": "llama",
        "llama.context_length": 256,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **changes,
    }


def write_spm_tokenizer(folder: Path) -> None:
    """tokenizer.json in the form of Llama 2: a space before each text, BOS first, bytes for the unknown."""
    tokens, _, merges = spm_vocabulary()
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    spec = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": token, **flags, "special": True} for i, token in enumerate(CONTROL)
        ],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": merges,
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(spec, ensure_ascii=False), encoding="utf-8")
