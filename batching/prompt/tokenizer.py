"""Text to ids. Text from a user is only text: whatever it spells, it never becomes a control token."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import tokenizers

from batching.prompt.detokenize import Detokenizer, StreamDecoder
from batching.prompt.errors import UnsupportedTokenizer
from batching.prompt.vocabulary import AddedToken, read_vocabulary

TOKENIZER_NAME = "tokenizer.json"
_MARK = "\ufdd0\ufdd1\ufdd2"
"""Noncharacters: never interchanged. As a token it makes the encoder take what follows as inner text."""


class Tokenizer:
    """One checkpoint's tokenizer. Reading is lazy: a process that only decodes never builds the encoder.

    `template_text` is the chat template's source: tokens that it spells out are control tokens too, even if
    the checkpoint does not call them special.
    """

    def __init__(
        self, source: str, *, bos_id: int | None = None, add_bos: bool = False, template_text: str = ""
    ) -> None:
        try:
            spec = json.loads(source)
        except (ValueError, RecursionError) as error:
            raise UnsupportedTokenizer(f"{TOKENIZER_NAME} is not valid JSON: {error}") from None
        if not isinstance(spec, dict):
            raise UnsupportedTokenizer(f"{TOKENIZER_NAME} must hold an object")
        self._source = source
        self._vocabulary = read_vocabulary(spec)
        self._unk_id = _unk_id(spec)
        self._template_text = template_text
        self.detokenizer = Detokenizer(self._vocabulary)
        self.bos_id = bos_id
        self.add_bos = add_bos and bos_id is not None

    @staticmethod
    def load(directory: Path) -> Tokenizer:
        """Load from a folder that `write_tokenizer_dir` wrote. Raises: `UnsupportedTokenizer`."""
        facts = json.loads((directory / "candela.json").read_text(encoding="utf-8"))
        source = (directory / TOKENIZER_NAME).read_text(encoding="utf-8")
        return Tokenizer(source, bos_id=facts["bos_id"], add_bos=facts["add_bos"])

    @property
    def id_count(self) -> int:
        """One more than the largest id."""
        return len(self._vocabulary.pieces)

    @cached_property
    def control_tokens(self) -> Mapping[str, AddedToken]:
        """Tokens that steer the model, by spelling: special ones, and those the chat template writes."""
        return {
            token.content: token
            for token in self._vocabulary.added
            if len(token.content) > 1 and (token.is_special or self._is_written(token.content))
        }

    @cached_property
    def control_ids(self) -> frozenset[int]:
        return frozenset(token.id for token in self.control_tokens.values() if token.id != self._unk_id)

    def token_id(self, content: str) -> int | None:
        """The id of an added token or of a token of the model's own alphabet."""
        number: int | None = self._special_encoder.token_to_id(content)
        return number

    def wraps_with(self, token_id: int) -> bool:
        """Whether the tokenizer's own post-processor puts this token before every text."""
        return list(self._special_encoder.encode("").ids[:1]) == [token_id]

    def encode(self, text: str, *, add_bos: bool | None = None) -> list[int]:
        """Encode plain text: no spelling in it becomes a control token. One BOS if the checkpoint asks.

        `add_bos` overrides the checkpoint's flag.
        """
        wants_bos = self.add_bos if add_bos is None else add_bos
        ids = self.encode_text(text)
        return [self.bos_id, *ids] if wants_bos and self.bos_id is not None else ids

    def encode_scaffold(self, text: str) -> list[int]:
        """Encode text that the template wrote: spellings of added tokens become tokens. No BOS."""
        return list(_encode(self._special_encoder, clean(text)).ids)

    def encode_text(self, text: str, *, is_inner: bool = False) -> list[int]:
        """Encode plain text without BOS. `is_inner`: it follows a control token (sentencepiece cares)."""
        text = clean(text).replace(_MARK, "\ufffd")
        prefix = _MARK if is_inner else ""
        encoding = _encode(self._plain_encoder, prefix + text)
        skip = 1 if is_inner else 0
        for index, number in enumerate(encoding.ids[skip:], start=skip):
            if number in self.control_ids:
                return self._encode_around(text, encoding.offsets[index], len(prefix), is_inner)
        return list(encoding.ids[skip:])

    def decode(self, ids: Iterable[int], *, continues: bool = False) -> str:
        """The text of all ids; special tokens have none."""
        return self.detokenizer.decode(ids, continues=continues)

    def stream(self) -> StreamDecoder:
        """A decoder for ids that continue a prompt."""
        return self.detokenizer.stream()

    def token_text(self, token_id: int) -> str:
        return self.detokenizer.token_text(token_id)

    def _encode_around(self, text: str, span: tuple[int, int], shift: int, is_inner: bool) -> list[int]:
        """The model's own merges spelled a control token: encode its two halves apart."""
        start, end = max(span[0] - shift, 0), span[1] - shift
        middle = min(max(start + (end - start) // 2, 1), len(text) - 1)
        if end - start < 2 or not 0 < middle < len(text):
            raise UnsupportedTokenizer(
                f"this tokenizer turns the text {text[start:end]!r} into a control token"
            )
        return [
            *self.encode_text(text[:middle], is_inner=is_inner),
            *self.encode_text(text[middle:], is_inner=True),
        ]

    def _is_written(self, content: str) -> bool:
        return not content.isspace() and content in self._template_text

    @cached_property
    def _special_encoder(self) -> tokenizers.Tokenizer:
        return _build(self._source)

    @cached_property
    def _plain_encoder(self) -> tokenizers.Tokenizer:
        """The same tokenizer with every control token switched off, and the mark switched on."""
        spec = json.loads(self._source)
        added = [
            {**entry, "special": entry.get("special") or entry["content"] in self.control_tokens}
            for entry in spec.get("added_tokens") or []
        ]
        mark = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        added.append({"id": self.id_count, "content": _MARK, **mark})
        encoder = _build(json.dumps({**spec, "added_tokens": added}, ensure_ascii=False))
        encoder.encode_special_tokens = True
        return encoder


def clean(text: str) -> str:
    """Text as Unicode allows it: a lone surrogate, which JSON can spell, becomes U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _build(source: str) -> tokenizers.Tokenizer:
    with _translated():
        encoder = tokenizers.Tokenizer.from_str(source)
        encoder.no_truncation()
        encoder.no_padding()
    return encoder


def _encode(encoder: tokenizers.Tokenizer, text: str) -> tokenizers.Encoding:
    with _translated():
        return encoder.encode(text, add_special_tokens=False)


@contextmanager
def _translated() -> Iterator[None]:
    """The library raises bare exceptions for what it cannot read, and panics for what it did not expect."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise UnsupportedTokenizer(f"{TOKENIZER_NAME} cannot be used: {error}"[:500]) from None


def _unk_id(spec: Mapping[str, object]) -> int | None:
    """The id that the model itself gives to what it does not know; user text may well produce it."""
    match spec.get("model"):
        case {"unk_id": int(number)}:
            return number
        case {"unk_token": str(text), "vocab": dict(vocab)}:
            found = vocab.get(text)
            return found if isinstance(found, int) else None
    return None
