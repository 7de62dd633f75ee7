"""What each token id stands for, in bytes: read from tokenizer.json without loading a tokenizer.

Byte-level vocabularies (GPT-2, Llama 3, SmolLM) and sentencepiece ones (Llama 1 and 2, Mistral). A decoder
that is neither is refused by name, since text from it could not be streamed exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from batching.prompt.errors import UnsupportedTokenizer

Json = Mapping[str, object]
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token outside the model's own alphabet. Special ones are control: they are never shown."""

    id: int
    content: str
    is_special: bool
    strips_left: bool = False
    strips_right: bool = False


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The bytes of each id (empty where no token is), and which ids are special.

    `strips_space`: the decoder drops one leading space of a text that starts a document.
    """

    pieces: tuple[bytes, ...]
    added: tuple[AddedToken, ...]
    special_ids: frozenset[int]
    strips_space: bool


def read_vocabulary(spec: Json) -> Vocabulary:
    """Read a parsed tokenizer.json.

    Raises:
        UnsupportedTokenizer: the vocabulary or the decoder has a form that is not known here.
    """
    tokens = _model_tokens(spec)
    added = read_added_tokens(spec)
    decoder = _decoder(spec.get("decoder"))
    texts = dict(tokens)
    texts.update((token.id, token.content) for token in added)
    if not texts or max(texts) >= 1 << 24:
        raise UnsupportedTokenizer("tokenizer.json names no tokens, or ids beyond reason")
    verbatim = {token.id for token in added}
    pieces = [b""] * (max(texts) + 1)
    for number, text in texts.items():
        pieces[number] = text.encode("utf-8", "replace") if number in verbatim else decoder.piece(text)
    special = frozenset(token.id for token in added if token.is_special)
    return Vocabulary(tuple(pieces), added, special, decoder.strips_space)


def read_added_tokens(spec: Json) -> tuple[AddedToken, ...]:
    """The `added_tokens` of a parsed tokenizer.json. Raises: `UnsupportedTokenizer` for a malformed entry."""
    entries = spec.get("added_tokens") or []
    if not isinstance(entries, list):
        raise UnsupportedTokenizer("tokenizer.json: added_tokens must be a list")
    return tuple(_added(entry) for entry in entries)


def _added(entry: object) -> AddedToken:
    if isinstance(entry, dict):
        number, content = entry.get("id"), entry.get("content")
        flags = [entry.get(name) is True for name in ("special", "lstrip", "rstrip")]
        if isinstance(number, int) and number >= 0 and isinstance(content, str) and content:
            return AddedToken(number, content, *flags)
    raise UnsupportedTokenizer(f"tokenizer.json: malformed added token {entry!r:.100}")


def _model_tokens(spec: Json) -> Iterator[tuple[int, str]]:
    """(id, token) of the model's own vocabulary: a map for BPE, a list of [token, score] for Unigram."""
    model = spec.get("model")
    if not isinstance(model, dict):
        raise UnsupportedTokenizer("tokenizer.json has no model")
    vocab = model.get("vocab")
    if isinstance(vocab, dict):
        pairs: Sequence[tuple[object, object]] = [(number, text) for text, number in vocab.items()]
    elif isinstance(vocab, list) and all(isinstance(row, list) and row for row in vocab):
        pairs = [(number, row[0]) for number, row in enumerate(vocab)]
    else:
        raise UnsupportedTokenizer("tokenizer.json: the model's vocabulary must be a map or a list")
    for number, text in pairs:
        if not isinstance(number, int) or number < 0 or not isinstance(text, str):
            raise UnsupportedTokenizer(f"tokenizer.json: malformed token {text!r:.100}")
        yield number, text


@dataclass(frozen=True, slots=True)
class _Decoder:
    is_byte_level: bool = False
    has_byte_tokens: bool = False
    replacements: tuple[tuple[str, str], ...] = ()
    strips_space: bool = False

    def piece(self, text: str) -> bytes:
        if self.is_byte_level:
            try:
                return bytes(map(BYTE_OF.__getitem__, text))
            except KeyError:
                return text.encode("utf-8", "replace")
        if self.has_byte_tokens and (match := _BYTE_TOKEN.fullmatch(text)):
            return bytes((int(match[1], 16),))
        for old, new in self.replacements:
            text = text.replace(old, new)
        return text.encode("utf-8", "replace")


def _decoder(raw: object) -> _Decoder:
    steps = list(_flat(raw))
    kinds = [step.get("type") for step in steps]
    if "ByteLevel" in kinds:
        if set(kinds) - {"ByteLevel", "Fuse"}:
            raise UnsupportedTokenizer(f"tokenizer.json: decoder {kinds} is not supported")
        return _Decoder(is_byte_level=True)
    known = {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}
    if not kinds or set(kinds) - known:
        raise UnsupportedTokenizer(
            f"tokenizer.json: decoder {kinds or None} is not supported; byte-level and sentencepiece ones are"
        )
    replacements = tuple(pair for step in steps if (pair := _replacement(step)))
    return _Decoder(
        has_byte_tokens="ByteFallback" in kinds,
        replacements=replacements,
        strips_space=any(_strips_space(step) for step in steps),
    )


def _flat(raw: object) -> Iterator[dict[str, object]]:
    if not isinstance(raw, dict):
        return
    inner = raw.get("decoders")
    if raw.get("type") == "Sequence" and isinstance(inner, list):
        for step in inner:
            yield from _flat(step)
    else:
        yield raw


def _replacement(step: dict[str, object]) -> tuple[str, str] | None:
    if step.get("type") == "Metaspace":
        return str(step.get("replacement", "▁")), " "
    if step.get("type") != "Replace":
        return None
    match step:
        case {"pattern": {"String": str(old)}, "content": str(new)} if old:
            return old, new
    raise UnsupportedTokenizer(f"tokenizer.json: decoder step {step!r:.100} is not supported")


def _strips_space(step: dict[str, object]) -> bool:
    if step.get("type") == "Metaspace":
        return (
            step.get("prepend_scheme", "always" if step.get("add_prefix_space", True) else "never") != "never"
        )
    if step.get("type") != "Strip":
        return False
    if (step.get("content"), step.get("start"), step.get("stop")) != (" ", 1, 0):
        raise UnsupportedTokenizer(f"tokenizer.json: decoder step {step!r:.100} is not supported")
    return True


def _byte_alphabet() -> dict[str, int]:
    """The printable stand-in of each byte. Source: GPT-2's `bytes_to_unicode`."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    alphabet = {chr(byte): byte for byte in shown}
    alphabet.update((chr(256 + i), byte) for i, byte in enumerate(hidden))
    return alphabet


BYTE_OF: Mapping[str, int] = _byte_alphabet()
