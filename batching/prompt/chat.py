"""Messages to prompt ids: render the checkpoint's template, then tokenize it segment by segment.

For benign messages the ids are those of transformers' `apply_chat_template`. Control tokens come only from
the template: the same spelling in a message stays text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import jinja2

from batching.prompt.errors import ChatTemplateError
from batching.prompt.guard import Guard, Limits
from batching.prompt.provenance import Marker, Rendered
from batching.prompt.sandbox import GUARD, NOW, TemplateEnvironment
from batching.prompt.tokenizer import Tokenizer, clean

Message = Mapping[str, object]
_REASONING = ("reasoning_content", "thinking", "reasoning")


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A rendered chat: the ids the model sees, and the text they spell."""

    ids: tuple[int, ...]
    text: str


@contextmanager
def _budget(guard: Guard, now: datetime | None = None) -> Iterator[None]:
    token = GUARD.set(guard)
    clock = NOW.set(now) if now is not None else None
    try:
        yield
    finally:
        GUARD.reset(token)
        if clock is not None:
            NOW.reset(clock)


class ChatTemplate:
    """One compiled template. `special` holds what it may call `bos_token`, `eos_token` and so on."""

    def __init__(self, source: str, special: Mapping[str, str], limits: Limits | None = None) -> None:
        """Raises: `ChatTemplateError` when the source is too long or not a template."""
        self.limits = limits or Limits()
        if len(source) > self.limits.source_characters:
            raise ChatTemplateError(f"the chat template has over {self.limits.source_characters} characters")
        self.source = source
        self._special = dict(special)
        with _budget(Guard(self.limits)):
            try:
                self._template = TemplateEnvironment().from_string(source)
            except (jinja2.TemplateError, SyntaxError, RecursionError, MemoryError, ValueError) as error:
                raise ChatTemplateError(f"the chat template cannot be read: {error}"[:500]) from None

    def render(
        self,
        messages: Sequence[Message],
        control: Mapping[str, object],
        *,
        now: datetime,
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, object] | None = None,
    ) -> Rendered:
        """Render a chat; `control` has the spellings of the control tokens as keys.

        Raises:
            ChatTemplateError: the template refused the messages, failed, or passed a limit.
        """
        given = [_flat_message(message) for message in messages]
        values = [given, list(tools or ()), dict(variables or {})]
        marker = Marker(tuple(control), [*values, self.source, self._special])
        marked_messages, marked_tools, marked_variables = (marker.mark(value) for value in values)
        assert isinstance(marked_variables, dict)
        with _budget(Guard(self.limits), now):
            text = self._render(
                {
                    **self._special,
                    **marked_variables,
                    "messages": marked_messages,
                    "tools": marked_tools or None,
                    "documents": None,
                    "add_generation_prompt": add_generation_prompt,
                }
            )
        return marker.read(clean(text))

    def _render(self, context: Mapping[str, object]) -> str:
        try:
            return self._template.render(context)
        except ChatTemplateError:
            raise
        except Exception as error:  # the edge of untrusted code: whatever it raises is the caller's 400
            name = type(error).__name__
            raise ChatTemplateError(
                f"the chat template failed on these messages: {name}: {error}"[:500]
            ) from None


def render_chat(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Message],
    *,
    now: datetime,
    tools: Sequence[Mapping[str, object]] | None = None,
    add_generation_prompt: bool = True,
    variables: Mapping[str, object] | None = None,
) -> ChatPrompt:
    """Render and tokenize a chat. BOS comes from the template alone, as it does in transformers.

    Raises:
        ChatTemplateError: the template refused the messages, failed, or passed a limit.
    """
    rendered = template.render(
        messages,
        tokenizer.control_tokens,
        now=now,
        tools=tools,
        add_generation_prompt=add_generation_prompt,
        variables=variables,
    )
    return ChatPrompt(tuple(encode_rendered(tokenizer, rendered)), rendered.text)


def encode_rendered(tokenizer: Tokenizer, rendered: Rendered) -> list[int]:
    """Ids of a rendered chat: exactly the template's control tokens, everything else as text."""
    if not rendered.has_lookalike:
        ids = tokenizer.encode_scaffold(rendered.text)
        if sum(number in tokenizer.control_ids for number in ids) == len(rendered.control):
            return ids
    return encode_segments(tokenizer, rendered)


def encode_segments(tokenizer: Tokenizer, rendered: Rendered) -> list[int]:
    """The same, one stretch between control tokens at a time."""
    ids: list[int] = []
    position, strips = 0, False
    for span in rendered.control:
        token = tokenizer.control_tokens[rendered.text[span.start : span.end]]
        between = rendered.text[position : span.start]
        ids += _between(tokenizer, between, position > 0, strips, token.strips_left)
        ids.append(token.id)
        position, strips = span.end, token.strips_right
    return ids + _between(tokenizer, rendered.text[position:], position > 0, strips, False)


def _between(
    tokenizer: Tokenizer, text: str, is_inner: bool, strips_left: bool, strips_right: bool
) -> list[int]:
    text = text.lstrip() if strips_left else text
    text = text.rstrip() if strips_right else text
    return tokenizer.encode_text(text, is_inner=is_inner) if text else []


def _flat_message(message: Message) -> dict[str, object]:
    """A message as templates know it: text parts as one text, the reasoning under all of its names."""
    flat = dict(message)
    content = flat.get("content")
    if isinstance(content, (list, tuple)) and content and all(_is_text_part(part) for part in content):
        flat["content"] = "\n".join(str(part["text"]) for part in content)
    reasoning = next((flat[name] for name in _REASONING if flat.get(name) is not None), None)
    if reasoning is not None:
        flat = {"thinking": reasoning, **flat, "reasoning_content": reasoning}
    return flat


def _is_text_part(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)
