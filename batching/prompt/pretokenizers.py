"""What each `tokenizer.ggml.pre` name stands for: how text is split before byte-level merges.

A GGUF file names its split instead of describing it; an unknown name is refused, since a guess gives wrong
ids. Each entry lists regular expressions that are applied one after the other; every match and every rest is
a piece. Source: llama.cpp, `llm_tokenizer_bpe` and `llama_vocab::impl::load`, and the tokenizers they name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from batching.prompt.errors import UnsupportedTokenizer

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_DIGIT = r"\p{N}"


def _llama3(digits: str) -> str:
    return (
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class Split:
    """The expressions of one pre-tokenizer, and what its name implies besides."""

    patterns: tuple[str, ...]
    ignores_merges: bool = False
    adds_bos: bool = False


_PLAIN = Split((_GPT2,))
_DIGITWISE = Split((_DIGIT, _GPT2))
_LLAMA3 = Split((_llama3(r"\p{N}{1,3}"),), ignores_merges=True, adds_bos=True)
_QWEN2 = Split((_llama3(r"\p{N}"),))
_SMAUG = Split((_llama3(r"\p{N}{1,3}"),))
_DEFAULT = Split((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))

SPLITS: Mapping[str, Split] = {
    "default": _DEFAULT,
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral"), _LLAMA3),
    **dict.fromkeys(("gpt-2", "phi-2", "mellum", "exaone4", "olmo", "mpt", "trillion"), _PLAIN),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "minerva-7b"), _DIGITWISE),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan"), _QWEN2),
    **dict.fromkeys(("smaug-bpe", "dbrx", "chatglm-bpe", "glm4"), _SMAUG),
    "tekken": Split((_TEKKEN,), ignores_merges=True, adds_bos=True),
}


def split_named(name: object) -> Split:
    """The split that `tokenizer.ggml.pre` names.

    Raises:
        UnsupportedTokenizer: no name, or one that is not in the table.
    """
    if isinstance(name, str) and name in SPLITS:
        return SPLITS[name]
    raise UnsupportedTokenizer(
        f"the GGUF file names its pre-tokenizer {name!r:.80}, which is not known here; one of "
        f"{', '.join(sorted(SPLITS))} is"
    )


def pre_tokenizer_spec(split: Split) -> dict[str, object]:
    """The split as tokenizer.json writes it, byte-level alphabet included."""
    steps: list[dict[str, object]] = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in split.patterns
    ]
    steps.append({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False})
    return {"type": "Sequence", "pretokenizers": steps}
