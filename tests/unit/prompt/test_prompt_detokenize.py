"""Streams of text: never within a character, equal to decoding at once and to the library."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from batching.prompt import Detokenizer
from tests.support.tiny_checkpoints import write_tiny_tokenizer
from tests.support.tiny_spm import write_spm_tokenizer


@lru_cache
def byte_level() -> tuple[Detokenizer, tokenizers.Tokenizer]:
    folder = Path(mkdtemp())
    write_tiny_tokenizer(folder)
    return _pair(folder)


@lru_cache
def sentencepiece() -> tuple[Detokenizer, tokenizers.Tokenizer]:
    folder = Path(mkdtemp())
    write_spm_tokenizer(folder)
    return _pair(folder)


def _pair(folder: Path) -> tuple[Detokenizer, tokenizers.Tokenizer]:
    text = (folder / "tokenizer.json").read_text(encoding="utf-8")
    return Detokenizer.from_spec(json.loads(text)), tokenizers.Tokenizer.from_str(text)


BOTH = pytest.mark.parametrize("pair", [byte_level, sentencepiece])


def streamed(detokenizer: Detokenizer, ids: list[int], *, continues: bool = True) -> list[str]:
    stream = detokenizer.stream(continues=continues)
    return [*(stream.push(number) for number in ids), stream.finish()]


@pytest.mark.pitfall("S1")
@BOTH
@given(ids=st.lists(st.integers(-1, 600), max_size=40), continues=st.booleans())
@settings(deadline=None)
def test_s1_the_pieces_join_to_the_whole(pair: Any, ids: list[int], continues: bool) -> None:
    detokenizer, _ = pair()
    whole = detokenizer.decode(ids, continues=continues)
    assert "".join(streamed(detokenizer, ids, continues=continues)) == whole


@pytest.mark.pitfall("S1")
@BOTH
@given(text=st.text(max_size=40))
@settings(deadline=None)
def test_s1_valid_text_streams_without_a_replacement_character(pair: Any, text: str) -> None:
    detokenizer, library = pair()
    clean = text.replace("\ufffd", "").replace("▁", "")
    pieces = streamed(detokenizer, library.encode(clean, add_special_tokens=False).ids, continues=False)
    assert not any("\ufffd" in piece for piece in pieces)
    assert "".join(pieces) == library.decode(library.encode(clean, add_special_tokens=False).ids)


@BOTH
@given(data=st.data())
@settings(deadline=None)
def test_ids_decode_as_the_library_decodes_them(pair: Any, data: st.DataObject) -> None:
    detokenizer, library = pair()
    known = st.sampled_from([i for i in range(library.get_vocab_size()) if not _is_byte(library, i)])
    ids = data.draw(st.lists(known, max_size=30))
    assert detokenizer.decode(ids) == library.decode(ids)


def _is_byte(library: tokenizers.Tokenizer, number: int) -> bool:
    """Byte tokens that form no character are shown one by one by the library, and as one sequence here."""
    return str(library.id_to_token(number)).startswith("<0x")


@pytest.mark.pitfall("S1")
@pytest.mark.parametrize("character", ["é", "ď", "你", "😀"])
def test_s1_a_character_over_several_tokens_appears_once_complete(character: str) -> None:
    detokenizer, library = sentencepiece()
    ids = [library.token_to_id(f"<0x{byte:02X}>") for byte in character.encode()]
    assert streamed(detokenizer, ids) == [*[""] * (len(ids) - 1), character, ""]


@pytest.mark.pitfall("S1")
def test_s1_an_unfinished_character_shows_only_at_the_end() -> None:
    detokenizer, library = sentencepiece()
    ids = [library.token_to_id(f"<0x{byte:02X}>") for byte in "😀".encode()[:3]]
    assert streamed(detokenizer, ids) == ["", "", "", "\ufffd"]


@pytest.mark.pitfall("S1")
def test_s1_bytes_that_can_never_become_a_character_do_not_hold_up_the_text() -> None:
    detokenizer, library = sentencepiece()
    ids = [library.token_to_id("<0xFF>"), library.token_to_id("a")]
    assert streamed(detokenizer, ids) == ["\ufffd", "a", ""]


def test_special_tokens_have_no_text_but_a_name() -> None:
    detokenizer, _ = byte_level()
    assert detokenizer.decode([1, 2]) == ""
    assert detokenizer.token_text(2) == "<|im_end|>"


def test_a_continuation_keeps_its_leading_space() -> None:
    detokenizer, library = sentencepiece()
    ids = [library.token_to_id("▁the"), library.token_to_id("▁a")]
    assert "".join(streamed(detokenizer, ids)) == " the a"
    assert detokenizer.decode(ids) == "the a"


def test_ids_outside_the_vocabulary_have_no_text() -> None:
    detokenizer, _ = byte_level()
    assert [detokenizer.token_text(number) for number in (-1, 512, 10**9)] == ["", "", ""]
