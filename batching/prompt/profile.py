"""Everything about a revision's prompts: tokenizer, chat template, stop ids, context, default sampling.

Loads the folder that `write_tokenizer_dir` wrote. Holds no state; safe to share between threads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from batching.prompt.chat import ChatPrompt, ChatTemplate, Message, render_chat
from batching.prompt.errors import NoChatTemplate, UnsupportedTokenizer
from batching.prompt.tokenizer import TOKENIZER_NAME, Tokenizer

FACTS_NAME = "candela.json"
LEAST_PENALTY, MOST_PENALTY = 0.01, 100.0
"""Of `repetition_penalty`: logits divided or multiplied by more are no longer finite."""
SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_LEAST_P = 1e-6
_MOST_K = 1 << 31


@dataclass(frozen=True, slots=True)
class PromptFacts:
    """What `candela.json` says: the ids that end an answer, the BOS rule, the sizes."""

    stop_ids: tuple[int, ...]
    bos_id: int | None
    add_bos: bool
    context_length: int
    vocab_size: int


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """What the checkpoint's generation_config.json recommends; none where it says nothing."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


class PromptProfile:
    """A revision's prompt side. Parts load when first used, since a replica needs less than a gateway."""

    def __init__(
        self,
        source: str,
        facts: PromptFacts,
        templates: Mapping[str, str],
        special: Mapping[str, str],
        defaults: SamplingDefaults | None = None,
    ) -> None:
        self._source = source
        self._templates = dict(templates)
        self._special = dict(special)
        self.facts = facts
        self.defaults = defaults or SamplingDefaults()

    @staticmethod
    def load(directory: Path) -> PromptProfile:
        """Raises: `UnsupportedTokenizer` when the folder is not what `write_tokenizer_dir` wrote."""
        try:
            config = _read(directory / "tokenizer_config.json")
            return PromptProfile(
                (directory / TOKENIZER_NAME).read_text(encoding="utf-8"),
                read_facts(_read(directory / FACTS_NAME)),
                read_templates(config),
                read_special(config),
                read_defaults(_read(directory / "generation_config.json")),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UnsupportedTokenizer(f"{directory.name} is no tokenizer folder: {error}") from error

    @property
    def stop_ids(self) -> tuple[int, ...]:
        return self.facts.stop_ids

    @property
    def context_length(self) -> int:
        return self.facts.context_length

    @property
    def has_chat_template(self) -> bool:
        return bool(self._templates)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Control tokens include those that a chat template spells out."""
        return Tokenizer(
            self._source,
            bos_id=self.facts.bos_id,
            add_bos=self.facts.add_bos,
            template_text="\n".join(self._templates.values()),
        )

    def encode_prompt(self, text: str) -> tuple[int, ...]:
        """Ids of a plain prompt: text throughout, one BOS if the checkpoint asks for it."""
        return tuple(self.tokenizer.encode(text))

    def encode_chat(
        self,
        messages: Sequence[Message],
        *,
        now: datetime,
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, object] | None = None,
    ) -> ChatPrompt:
        """Render a chat with the checkpoint's template and tokenize it.

        Raises:
            NoChatTemplate: the checkpoint has none.
            ChatTemplateError: the template refused the messages, failed, or passed a limit.
        """
        return render_chat(
            self.tokenizer,
            self._template(bool(tools)),
            messages,
            now=now,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            variables=variables,
        )

    @cached_property
    def _compiled(self) -> dict[str, ChatTemplate]:
        return {}

    def _template(self, has_tools: bool) -> ChatTemplate:
        name = "tool_use" if has_tools and "tool_use" in self._templates else "default"
        if name not in self._templates:
            raise NoChatTemplate
        if name not in self._compiled:
            self._compiled[name] = ChatTemplate(self._templates[name], self._special)
        return self._compiled[name]


def read_facts(raw: Mapping[str, object]) -> PromptFacts:
    """Parse `candela.json`. Raises: `KeyError`, `TypeError`."""
    stop_ids, bos_id = raw["stop_ids"], raw["bos_id"]
    if not isinstance(stop_ids, list) or not (bos_id is None or isinstance(bos_id, int)):
        raise TypeError(f"{FACTS_NAME} is malformed")
    context, vocab = raw["context_length"], raw["vocab_size"]
    if not isinstance(context, int) or not isinstance(vocab, int):
        raise TypeError(f"{FACTS_NAME} is malformed")
    return PromptFacts(tuple(int(i) for i in stop_ids), bos_id, raw["add_bos"] is True, context, vocab)


def read_templates(config: Mapping[str, object]) -> dict[str, str]:
    """Chat templates by name, from tokenizer_config.json: one text, or a list of named ones."""
    stated = config.get("chat_template")
    if isinstance(stated, str):
        return {"default": stated}
    if isinstance(stated, Mapping):
        return {str(name): text for name, text in stated.items() if isinstance(text, str)}
    if not isinstance(stated, list):
        return {}
    return {
        str(entry.get("name")): entry["template"]
        for entry in stated
        if isinstance(entry, Mapping) and isinstance(entry.get("template"), str)
    }


def read_special(config: Mapping[str, object]) -> dict[str, str]:
    """`bos_token` and the like, which templates may write; each is a text or an added-token object."""
    special: dict[str, str] = {}
    for name in SPECIAL_NAMES:
        value = config.get(name)
        if isinstance(value, Mapping):
            value = value.get("content")
        if isinstance(value, str) and value:
            special[name] = value
    return special


def read_defaults(generation: Mapping[str, object]) -> SamplingDefaults:
    """The sampling that generation_config.json recommends; values no request may have count as absent."""

    def number(name: str, least: float, most: float) -> float | None:
        value = generation.get(name)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return None
        return float(value) if least <= value <= most else None

    top_k = number("top_k", -1, _MOST_K)
    return SamplingDefaults(
        temperature=number("temperature", 0.0, 2.0),
        top_p=number("top_p", _LEAST_P, 1.0),
        top_k=int(top_k) if top_k is not None and top_k.is_integer() else None,
        min_p=number("min_p", 0.0, 1.0),
        repetition_penalty=number("repetition_penalty", LEAST_PENALTY, MOST_PENALTY),
    )


def _read(path: Path) -> dict[str, object]:
    value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise TypeError(f"{path.name} must hold an object")
    return value
