"""A byte-level tokenizer without merges: one token a byte, and two control tokens. Written as a
revision's folder is.
"""

from __future__ import annotations

import json
from pathlib import Path

IM_START = 256
IM_END = 257
VOCAB = 258
TEMPLATE = (
    "{% for m in messages %}"
    "{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_alphabet() -> list[str]:
    """The visible characters that stand for bytes 0 to 255. Source: GPT-2's byte-level encoding."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in visible}
    for number, byte in enumerate(b for b in range(256) if b not in letters):
        letters[byte] = chr(256 + number)
    return [letters[b] for b in range(256)]


def write_tiny_tokenizer(
    folder: Path, *, template: str = TEMPLATE, context_length: int = 4096, vocab_size: int = VOCAB
) -> None:
    """The files that the gateway and its prompt children read."""
    vocab = {letter: number for number, letter in enumerate(byte_alphabet())}
    added = [
        {"id": number, "content": text, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for number, text in ((IM_START, "<|im_start|>"), (IM_END, "<|im_end|>"))
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    files: dict[str, dict[str, object]] = {
        "tokenizer.json": {
            "version": "1.0",
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": None,
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "vocab": vocab,
                "merges": [],
            },
        },
        "tokenizer_config.json": {"chat_template": template, "eos_token": "<|im_end|>"},
        "generation_config.json": {},
        "candela.json": {
            "bos_id": None,
            "add_bos": False,
            "stop_ids": [IM_END],
            "context_length": context_length,
            "vocab_size": vocab_size,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
