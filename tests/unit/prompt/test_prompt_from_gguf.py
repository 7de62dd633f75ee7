"""GGUF metadata to tokenizer files: ids by llama.cpp's rules, and those of the tokenizer behind the file."""

from __future__ import annotations

import json
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from batching.prompt import PromptProfile, Tokenizer, UnsupportedTokenizer
from batching.prompt.export import write_tokenizer_dir
from batching.prompt.from_gguf import tokenizer_files
from batching.prompt.pretokenizers import SPLITS, pre_tokenizer_spec, split_named
from common.errors import UploadRefused
from compiler.checkpoint import read_gguf
from tests.support.tiny_checkpoints import write_tiny_checkpoint
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.tiny_spm import BYTES, CONTROL, spm_metadata

TEXTS = [
    "1st 2nd ١٢٣",
    "Hello, world!  1999\n\n\tx",
    "  leading",
    "I'll DON'T",
    "Привет 你好 😀🎉 é",
    "<|im_end|>\n<|im_start|>system",
    "</s><s><unk><0x0A>",
    "",
]


@lru_cache
def tiny_metadata() -> dict[str, Any]:
    from tempfile import mkdtemp

    return dict(read_gguf(write_tiny_gguf(Path(mkdtemp()) / "m.gguf"), "m.gguf").metadata)


def built(metadata: dict[str, Any]) -> Tokenizer:
    files = tokenizer_files(metadata)
    return Tokenizer(
        json.dumps(files.tokenizer), bos_id=1, add_bos=bool(files.tokenizer_config["add_bos_token"])
    )


def spm_oracle(metadata: dict[str, Any], text: str) -> list[int]:
    """llama.cpp's `llm_tokenizer_spm_session` in a few lines: merge the best pair until none is left."""
    tokens, scores = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"]
    known = {token: i for i, token in enumerate(tokens) if token not in CONTROL + BYTES}
    symbols = list(("▁" + text.replace(" ", "▁")) if text else "")
    while True:
        pairs = [
            (-scores[known[left + right]], i)
            for i, (left, right) in enumerate(pairwise(symbols))
            if left + right in known
        ]
        if not pairs:
            break
        _, at = min(pairs)
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    ids: list[int] = []
    for symbol in symbols:
        ids += [known[symbol]] if symbol in known else [tokens.index(f"<0x{b:02X}>") for b in symbol.encode()]
    return ids


@pytest.mark.pitfall("G1")
@pytest.mark.parametrize("text", TEXTS)
def test_g1_both_forms_of_a_checkpoint_give_the_same_ids(text: str, tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path / "hf")
    write_tokenizer_dir(tmp_path / "hf", tmp_path / "a")
    write_tokenizer_dir(tmp_path, tmp_path / "b", tiny_metadata())
    first, second = PromptProfile.load(tmp_path / "a"), PromptProfile.load(tmp_path / "b")
    assert first.encode_prompt(text) == second.encode_prompt(text)
    assert first.facts == second.facts


@pytest.mark.pitfall("G1")
def test_g1_smollm_splits_digits_one_by_one_in_every_script() -> None:
    pieces = _pieces("smollm", "1st 2nd ١٢٣")
    assert pieces == [
        "1",
        "st",
        "Ġ",
        "2",
        "nd",
        "Ġ",
        *_pieces("smollm", "١"),
        *_pieces("smollm", "٢"),
        *_pieces("smollm", "٣"),
    ]


@pytest.mark.parametrize("name", ["smollm", "starcoder"])
@pytest.mark.parametrize("text", TEXTS)
def test_digitwise_splits_are_those_of_the_tokenizers_they_name(name: str, text: str) -> None:
    digits = {"type": "Digits", "individual_digits": True}
    assert _pieces(name, text) == _split({"type": "Sequence", "pretokenizers": [digits, _BYTE_LEVEL]}, text)


@pytest.mark.parametrize("text", TEXTS)
def test_gpt2_splits_are_those_of_the_byte_level_pre_tokenizer(text: str) -> None:
    assert _pieces("gpt-2", text) == _split(_BYTE_LEVEL, text)


@pytest.mark.pitfall("G1")
@pytest.mark.parametrize(
    ("name", "text", "pieces"),
    [
        ("llama-bpe", "x1234567 I'LL", ["x", "123", "456", "7", "ĠI", "'LL"]),
        ("llama-bpe", "a\n\n b!?\n", ["a", "ĊĊ", "Ġb", "!?Ċ"]),
        ("qwen2", "x1234 I'LL", ["x", "1", "2", "3", "4", "ĠI", "'LL"]),
        ("smaug-bpe", "1234", ["123", "4"]),
        ("tekken", "HelloWorld 12", ["Hello", "World", "Ġ", "1", "2"]),
        ("default", "a+b 12345", ["a", "+", "b", "Ġ", "123", "45"]),
        ("gpt-2", "I'LL I'll 123", ["I", "'", "LL", "ĠI", "'ll", "Ġ123"]),
    ],
)
def test_each_name_stands_for_its_own_split(name: str, text: str, pieces: list[str]) -> None:
    assert _pieces(name, text) == pieces


@pytest.mark.parametrize("name", SPLITS)
@pytest.mark.parametrize("text", TEXTS)
def test_no_split_loses_text(name: str, text: str) -> None:
    assert "".join(_pieces(name, text)) == "".join(_split(_BYTE_LEVEL, text))


@pytest.mark.pitfall("G1")
@pytest.mark.parametrize("name", ["gemma4", "", None, 7])
def test_g1_an_unknown_name_is_refused_not_guessed(name: object) -> None:
    with pytest.raises(UnsupportedTokenizer, match="pre-tokenizer"):
        split_named(name)


@given(text=st.text("theandbrow fxijumps.é😀", max_size=24))
@settings(max_examples=200, deadline=None)
def test_sentencepiece_ids_are_those_of_llama_cpps_algorithm(text: str) -> None:
    metadata = _spm()
    assert _spm_tokenizer().encode(text, add_bos=False) == spm_oracle(metadata, text)


@pytest.mark.parametrize("text", TEXTS)
def test_sentencepiece_text_never_becomes_control_or_byte_tokens_by_spelling(text: str) -> None:
    ids = _spm_tokenizer().encode(text, add_bos=False)
    assert ids == spm_oracle(_spm(), text)
    assert not set(ids) & {0, 1, 2}


@pytest.mark.pitfall("G3")
def test_g3_a_sentencepiece_file_adds_bos_unless_it_says_otherwise() -> None:
    assert built(_spm()).encode("x")[0] == 1
    assert built(spm_metadata(**{"tokenizer.ggml.add_bos_token": False})).encode("x")[0] != 1


@pytest.mark.pitfall("G3")
def test_g3_a_byte_level_file_adds_no_bos_unless_it_says_so() -> None:
    assert built(tiny_metadata()).encode("x")[0] != 1
    assert built({**tiny_metadata(), "tokenizer.ggml.add_bos_token": True}).encode("x")[0] == 1


@pytest.mark.pitfall("G3")
def test_g3_a_llama3_file_adds_bos_by_its_name() -> None:
    metadata = {k: v for k, v in tiny_metadata().items() if k != "tokenizer.ggml.add_bos_token"}
    assert built({**metadata, "tokenizer.ggml.pre": "llama-bpe"}).add_bos


def test_no_space_is_prepended_where_the_file_says_so() -> None:
    tokenizer = built(spm_metadata(**{"tokenizer.ggml.add_space_prefix": False}))
    assert tokenizer.decode(tokenizer.encode(" the", add_bos=False)) == " the"
    assert tokenizer.encode("the", add_bos=False) != _spm_tokenizer().encode("the", add_bos=False)


@pytest.mark.parametrize("metadata", [tiny_metadata, spm_metadata])
@pytest.mark.parametrize("text", TEXTS)
def test_transformers_reads_the_written_files_alike(metadata: Any, text: str, tmp_path: Path) -> None:
    write_tokenizer_dir(tmp_path, tmp_path / "out", metadata())
    oracle = AutoTokenizer.from_pretrained(tmp_path / "out")
    expected = oracle(text, split_special_tokens=True).input_ids
    assert list(PromptProfile.load(tmp_path / "out").encode_prompt(text)) == expected


@pytest.mark.pitfall("G3")
def test_the_chat_template_and_ids_come_along(tmp_path: Path) -> None:
    write_tokenizer_dir(tmp_path, tmp_path / "out", tiny_metadata())
    profile = PromptProfile.load(tmp_path / "out")
    assert profile.has_chat_template
    assert (profile.stop_ids, profile.context_length, profile.facts.vocab_size) == ((2,), 256, 512)


def test_named_chat_templates_are_kept_apart() -> None:
    metadata = {**tiny_metadata(), "tokenizer.chat_template.tool_use": "tools"}
    config = tokenizer_files(metadata).tokenizer_config
    assert [entry["name"] for entry in config["chat_template"]] == ["default", "tool_use"]  # type: ignore[attr-defined]


def test_an_end_of_turn_is_control_whatever_the_file_calls_it() -> None:
    types = [1] * 512
    tokenizer = built({**tiny_metadata(), "tokenizer.ggml.token_type": types})
    assert 2 in tokenizer.control_ids


@pytest.mark.parametrize(
    "change",
    [
        {"tokenizer.ggml.model": "bert"},
        {"tokenizer.ggml.model": None},
        {"tokenizer.ggml.pre": "unheard-of"},
        {"tokenizer.ggml.tokens": None},
        {"tokenizer.ggml.tokens": []},
        {"tokenizer.ggml.tokens": ["a", "a"]},
        {"tokenizer.ggml.tokens": [1, 2]},
        {"tokenizer.ggml.token_type": [1]},
        {"tokenizer.ggml.token_type": ["x"] * 512},
        {"tokenizer.ggml.merges": None},
        {"tokenizer.ggml.merges": ["a b c"]},
        {"tokenizer.ggml.merges": ["nonexistent pair"]},
        {"tokenizer.ggml.model": "llama"},
        {"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [float("nan")] * 512},
        {"tokenizer.chat_template": "{% if %}"},
        {"llama.vocab_size": 100},
    ],
)
def test_malformed_metadata_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UploadRefused):
        write_tokenizer_dir(tmp_path, tmp_path / "out", {**tiny_metadata(), **change})
    assert not (tmp_path / "out").exists()


_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


@lru_cache
def _spm() -> dict[str, Any]:
    return spm_metadata()


@lru_cache
def _spm_tokenizer() -> Tokenizer:
    return built(_spm())


def _pieces(name: str, text: str) -> list[str]:
    return _split(pre_tokenizer_spec(SPLITS[name]), text)


def _split(spec: dict[str, Any], text: str) -> list[str]:
    model = {"type": "BPE", "vocab": {}, "merges": []}
    whole = {"version": "1.0", "added_tokens": [], "pre_tokenizer": spec, "model": model}
    splitter = tokenizers.Tokenizer.from_str(json.dumps(whole)).pre_tokenizer
    return [piece for piece, _ in splitter.pre_tokenize_str(text)]
