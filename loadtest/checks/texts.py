"""The texts that every check reads: prompts by kind, and spellings that tokenizers get wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from batching.prompt import PromptProfile

PROMPTS_FILE = Path(__file__).with_name("prompts.txt")
TOKEN_TEXTS_FILE = Path(__file__).with_name("token_texts.jsonl")
_MARK = "%% "
_CHAT = "chat"


@dataclass(frozen=True, slots=True)
class Prompt:
    """`kind` says what the text is: prose, python, emoji, ... A `chat` is what a user says to the model."""

    kind: str
    text: str

    def ids(self, profile: PromptProfile) -> list[int]:
        """Token ids, a chat's by the checkpoint's own template."""
        if self.kind != _CHAT:
            return list(profile.encode_prompt(self.text))
        message = {"role": "user", "content": self.text}
        return list(profile.encode_chat([message], now=datetime(2025, 1, 1, tzinfo=UTC)).ids)


def read_prompts(path: Path = PROMPTS_FILE) -> tuple[Prompt, ...]:
    """Prompts of a file in which a line `%% KIND` starts each."""
    blocks = path.read_text(encoding="utf-8").removesuffix("\n").split(f"\n{_MARK}")
    pairs = (block.removeprefix(_MARK).partition("\n") for block in blocks)
    return tuple(Prompt(kind, text) for kind, _, text in pairs)


def read_token_texts(path: Path = TOKEN_TEXTS_FILE) -> Sequence[str]:
    """One JSON string a line, so that control characters and trailing spaces survive."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [str(json.loads(line)) for line in lines]
