"""GGUF metadata to Hugging Face's tokenizer files. The metadata comes as a map; the caller reads the file.

Byte-level BPE (`gpt2`) and sentencepiece BPE (`llama`) vocabularies. Flags and ids follow the file, not
habit: BOS is added only where the file, or the form of tokenizer it names, says so.
Source: llama.cpp, `llama-vocab.cpp`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import isnan

from batching.prompt.errors import UnsupportedTokenizer
from batching.prompt.pretokenizers import pre_tokenizer_spec, split_named

Metadata = Mapping[str, object]
END_OF_TURN = ("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|end_of_text|>")
_PREFIX = "tokenizer.ggml."
_SPACE = "▁"


class TokenType(IntEnum):
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """Contents of tokenizer.json, tokenizer_config.json, generation_config.json and config.json."""

    tokenizer: dict[str, object]
    tokenizer_config: dict[str, object]
    generation_config: dict[str, object]
    config: dict[str, object]


def tokenizer_files(metadata: Metadata) -> TokenizerFiles:
    """Build the four files from a GGUF file's metadata.

    Raises:
        UnsupportedTokenizer: another kind of vocabulary, an unknown pre-tokenizer, or malformed entries.
    """
    model = metadata.get(_PREFIX + "model")
    tokens = _tokens(metadata)
    types = _types(metadata, tokens)
    if model == "gpt2":
        split = split_named(metadata.get(_PREFIX + "pre", "default"))
        adds_bos = split.adds_bos
        spec = _byte_level(metadata, tokens, split.ignores_merges) | {
            "pre_tokenizer": pre_tokenizer_spec(split),
        }
    elif model == "llama":
        adds_bos = True
        spec = _sentencepiece(metadata, tokens, types)
    else:
        raise UnsupportedTokenizer(f"GGUF tokenizer model {model!r:.80} is not supported; gpt2 and llama are")
    stated = metadata.get(_PREFIX + "add_bos_token")
    adds_bos = stated if isinstance(stated, bool) else adds_bos
    ids = {
        name: _id(metadata, name, len(tokens)) for name in ("bos", "eos", "unknown", "padding", "eot", "eom")
    }
    bos = ids["bos"] if adds_bos else None
    spec["added_tokens"] = _added(tokens, types)
    spec["post_processor"] = _post_processor(tokens, bos)
    whole: dict[str, object] = {"version": "1.0", "truncation": None, "padding": None, **spec}
    return TokenizerFiles(
        whole,
        _tokenizer_config(metadata, tokens, ids, bos is not None),
        _generation_config(ids),
        _model_config(metadata, tokens, ids),
    )


def _tokens(metadata: Metadata) -> list[str]:
    stated = metadata.get(_PREFIX + "tokens")
    if not isinstance(stated, list) or not stated or not all(isinstance(token, str) for token in stated):
        raise UnsupportedTokenizer("the GGUF file holds no list of tokens")
    tokens = [token or f"[EMPTY_{i}]" for i, token in enumerate(stated)]
    if len(set(tokens)) != len(tokens):
        raise UnsupportedTokenizer("the GGUF file lists a token twice")
    return tokens


def _types(metadata: Metadata, tokens: Sequence[str]) -> list[int]:
    """Each token's type; a token whose spelling ends a turn is control, whatever the file says."""
    stated = metadata.get(_PREFIX + "token_type", [TokenType.NORMAL] * len(tokens))
    kinds = [kind for kind in stated if isinstance(kind, int)] if isinstance(stated, list) else []
    if len(kinds) < len(tokens):
        raise UnsupportedTokenizer("the GGUF file lists fewer token types than tokens")
    return [
        TokenType.CONTROL if token in END_OF_TURN else kind
        for token, kind in zip(tokens, kinds, strict=False)
    ]


def _id(metadata: Metadata, name: str, count: int) -> int | None:
    value = metadata.get(f"{_PREFIX}{name}_token_id")
    return value if isinstance(value, int) and 0 <= value < count else None


def _byte_level(metadata: Metadata, tokens: Sequence[str], ignores_merges: bool) -> dict[str, object]:
    merges = metadata.get(_PREFIX + "merges")
    if not isinstance(merges, list) or not all(isinstance(m, str) and m.count(" ") == 1 for m in merges):
        raise UnsupportedTokenizer("the GGUF file holds no list of merges, each of two parts")
    model = {
        "type": "BPE",
        "unk_token": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": ignores_merges,
        "vocab": {token: i for i, token in enumerate(tokens)},
        "merges": [merge.split(" ") for merge in merges],
    }
    decoder = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return {"normalizer": None, "model": model, "decoder": decoder}


def _sentencepiece(metadata: Metadata, tokens: Sequence[str], types: Sequence[int]) -> dict[str, object]:
    unknown = _id(metadata, "unknown", len(tokens))
    prefix = metadata.get(_PREFIX + "add_space_prefix", True) is True
    model = {
        "type": "BPE",
        "unk_token": None if unknown is None else tokens[unknown],
        "fuse_unk": True,
        "byte_fallback": True,
        "ignore_merges": False,
        "vocab": {token: i for i, token in enumerate(tokens)},
        "merges": _merges(tokens, types, _scores(metadata, tokens)),
    }
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    normalizers = [{"type": "Prepend", "prepend": _SPACE}, replace] if prefix else [replace]
    decoders: list[dict[str, object]] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "model": model,
        "decoder": {"type": "Sequence", "decoders": decoders},
    }


def _scores(metadata: Metadata, tokens: Sequence[str]) -> list[float]:
    stated = metadata.get(_PREFIX + "scores")
    scores = [s for s in stated if isinstance(s, (int, float))] if isinstance(stated, list) else []
    if len(scores) < len(tokens) or any(isnan(score) for score in scores):
        raise UnsupportedTokenizer("the GGUF file lists fewer scores than tokens")
    return scores


def _merges(tokens: Sequence[str], types: Sequence[int], scores: Sequence[float]) -> list[list[str]]:
    """Every way to join two pieces into a third, best score first: sentencepiece's rule as a merge list.

    Only ordinary pieces take part, so that no spelling merges into a control or byte token.
    """
    ordinary = (TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED)
    rank = {token: i for i, token in enumerate(tokens) if types[i] in ordinary}
    found: list[tuple[float, int, int, str, str]] = []
    for token, i in rank.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in rank and right in rank:
                found.append((-scores[i], rank[left], rank[right], left, right))
    return [[left, right] for _, _, _, left, right in sorted(found)]


def _added(tokens: Sequence[str], types: Sequence[int]) -> list[dict[str, object]]:
    kinds = (TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return [
        {"id": i, "content": token, **flags, "special": types[i] != TokenType.USER_DEFINED}
        for i, token in enumerate(tokens)
        if types[i] in kinds
    ]


def _post_processor(tokens: Sequence[str], bos: int | None) -> dict[str, object]:
    """Puts BOS first, if the file wants it."""
    single: list[dict[str, object]] = [{"Sequence": {"id": "A", "type_id": 0}}]
    pair: list[dict[str, object]] = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    special: dict[str, object] = {}
    if bos is not None:
        name = tokens[bos]
        special[name] = {"id": name, "ids": [bos], "tokens": [name]}
        first: dict[str, object] = {"SpecialToken": {"id": name, "type_id": 0}}
        single, pair = [first, *single], [first, *pair]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


def _tokenizer_config(
    metadata: Metadata, tokens: Sequence[str], ids: Mapping[str, int | None], adds_bos: bool
) -> dict[str, object]:
    names = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
    config: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_bos_token": adds_bos,
    }
    for key, name in names.items():
        number = ids[key]
        if number is not None:
            config[name] = tokens[number]
    templates = _templates(metadata)
    if templates:
        only = templates.get("default") if len(templates) == 1 else None
        named = [{"name": name, "template": text} for name, text in templates.items()]
        config["chat_template"] = only if only is not None else named
    return config


def _templates(metadata: Metadata) -> dict[str, str]:
    key = "tokenizer.chat_template"
    found = {"default": metadata[key]} if isinstance(metadata.get(key), str) else {}
    found.update(
        (name.removeprefix(key + "."), text) for name, text in metadata.items() if name.startswith(key + ".")
    )
    return {name: text for name, text in found.items() if isinstance(text, str)}


def _generation_config(ids: Mapping[str, int | None]) -> dict[str, object]:
    ends = list(dict.fromkeys(i for i in (ids["eos"], ids["eot"], ids["eom"]) if i is not None))
    return {"bos_token_id": ids["bos"], "eos_token_id": ends, "pad_token_id": ids["padding"]}


def _model_config(
    metadata: Metadata, tokens: Sequence[str], ids: Mapping[str, int | None]
) -> dict[str, object]:
    """The sizes that the prompt side needs; the compiler reads its own from the file."""
    architecture = metadata.get("general.architecture")
    context = metadata.get(f"{architecture}.context_length")
    vocab = metadata.get(f"{architecture}.vocab_size")
    return {
        "model_type": architecture,
        "max_position_embeddings": context if isinstance(context, int) else None,
        "vocab_size": vocab if isinstance(vocab, int) else len(tokens),
        "bos_token_id": ids["bos"],
        "eos_token_id": ids["eos"],
    }
