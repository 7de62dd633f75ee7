"""The two forms of one model, GGUF and safetensors: equal logits, and the token ids of its own tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoTokenizer

from batching.prompt import PromptProfile
from compiler.runtime import Program
from loadtest.checks.forward import teacher_forced
from loadtest.checks.report import Finding

_NOW = datetime(2025, 1, 1, tzinfo=UTC)


def check_forms(
    first: Program, second: Program, prompts: Sequence[Sequence[int]], most: float = 0.0
) -> list[Finding]:
    """Logits of both programs on every prompt differ by no more than `most`; by default in no bit."""
    different = elements = 0
    largest = 0.0
    for ids in prompts:
        chunks = [min(first.max_batched_tokens, 128)]
        a, b = teacher_forced(first, ids, chunks), teacher_forced(second, ids, chunks)
        different += int((a.view(np.uint32) != b.view(np.uint32)).sum())
        largest = max(largest, float(np.abs(a - b).max()))
        elements += a.size
    name = "GGUF and safetensors"
    bits = Finding(name, "logits that differ in a bit", f"{different} of {elements}")
    if not most:
        bits = replace(bits, bound="0", is_met=not different)
    return [bits, Finding(name, "largest difference", f"{largest:.2g}", f"<= {most:g}", largest <= most)]


def check_tokens(
    checkpoint: Path, profiles: Mapping[str, PromptProfile], texts: Sequence[str]
) -> list[Finding]:
    """Ids of each form's tokenizer equal those of the checkpoint's own, read by transformers.

    Text of users: control tokens stay text. Text of templates: they become tokens. Decoded, text comes back.
    """
    own = AutoTokenizer.from_pretrained(str(checkpoint))
    findings = []
    for form, profile in profiles.items():
        wrong = tuple(
            f"{_fault(own, profile, text)}: {text!r}" for text in texts if _fault(own, profile, text)
        )
        name = f"tokens, {form}"
        findings.append(
            Finding(name, "texts with other ids", f"{len(wrong)} of {len(texts)}", "0", not wrong, wrong)
        )
        chats = tuple(repr(text) for text in texts if not _is_same_chat(own, profile, text))
        findings.append(
            Finding(name, "chats with other ids", f"{len(chats)} of {len(texts)}", "0", not chats, chats)
        )
    return findings


def _fault(own: Any, profile: PromptProfile, text: str) -> str:
    """What is wrong with the ids of a text, or nothing."""
    tokenizer = profile.tokenizer
    plain = own(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    if tokenizer.encode_text(text) != plain:
        return "as a user's text"
    if tokenizer.encode_scaffold(text) != own(text, add_special_tokens=False)["input_ids"]:
        return "as a template's text"
    if tokenizer.decode(plain) != text:
        return "decoded"
    return ""


def _is_same_chat(own: Any, profile: PromptProfile, text: str) -> bool:
    """A chat whose message is `text` has transformers' ids; or, where it spells a control token, no such."""
    ids = list(profile.encode_chat([{"role": "user", "content": text}], now=_NOW).ids)
    if not any(spelling in text for spelling in profile.tokenizer.control_tokens):
        message = [{"role": "user", "content": text}]
        theirs: list[int] = own.apply_chat_template(message, add_generation_prompt=True)["input_ids"]
        return ids == theirs
    benign = profile.encode_chat([{"role": "user", "content": "x"}], now=_NOW).ids
    control = profile.tokenizer.control_ids
    return [i for i in ids if i in control] == [i for i in benign if i in control]
