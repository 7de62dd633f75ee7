"""Ids to text, all at once or as a stream that never ends within a character.

A stream holds the bytes of an unfinished character until they are complete; bytes that can never become
one show as U+FFFD once that is certain, an unfinished rest at the end. So the pieces of a stream always join
to what decoding all ids at once gives.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping

from batching.prompt.vocabulary import Vocabulary, read_vocabulary

_DECODER = codecs.getincrementaldecoder("utf-8")


class StreamDecoder:
    """The text of one sequence's ids, one id at a time. Special tokens have no text."""

    def __init__(self, detokenizer: Detokenizer, *, continues: bool = True) -> None:
        """`continues`: the ids go on after a prompt, so a leading space is theirs and stays."""
        self._piece = detokenizer.shown_bytes
        self._decoder = _DECODER(errors="replace")
        self._drops_space = detokenizer.strips_space and not continues

    def push(self, token_id: int) -> str:
        """Text that became complete with this token; may be empty."""
        return self._feed(self._piece(token_id), is_last=False)

    def finish(self) -> str:
        """What is left: an unfinished character as U+FFFD."""
        return self._feed(b"", is_last=True)

    def _feed(self, data: bytes, is_last: bool) -> str:
        if self._drops_space and data:
            self._drops_space = False
            data = data.removeprefix(b" ")
        return self._decoder.decode(data, is_last)


class Detokenizer:
    """Text of ids under one vocabulary. Ids outside it, and gaps in it, have no text."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._pieces = vocabulary.pieces
        self._special = vocabulary.special_ids
        self.strips_space = vocabulary.strips_space

    @staticmethod
    def from_spec(spec: Mapping[str, object]) -> Detokenizer:
        """From a parsed tokenizer.json. Raises: `UnsupportedTokenizer`."""
        return Detokenizer(read_vocabulary(spec))

    def decode(self, ids: Iterable[int], *, continues: bool = False) -> str:
        """The text of all ids; special tokens have none. `continues` as in `StreamDecoder`."""
        stream = self.stream(continues=continues)
        return "".join([*(stream.push(i) for i in ids), stream.finish()])

    def stream(self, *, continues: bool = True) -> StreamDecoder:
        return StreamDecoder(self, continues=continues)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; of a special token, its name."""
        return self._pieces[token_id] if 0 <= token_id < len(self._pieces) else b""

    def token_text(self, token_id: int) -> str:
        """A token by itself, for log-probabilities; bytes that are no character show as U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def shown_bytes(self, token_id: int) -> bytes:
        """What the token adds to the text a user sees: nothing, if it is special."""
        return b"" if token_id in self._special else self.token_bytes(token_id)
