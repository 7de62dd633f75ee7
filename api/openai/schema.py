"""Request bodies of `/v1/completions` and `/v1/chat/completions`: fields, types and ranges.

Rules that join several fields, or need the operator's limits, are in `rules`. Types are strict (`"1"` is no
number) and unknown fields are kept apart, so that the answer can list them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from batching.prompt.profile import LEAST_PENALTY, MOST_PENALTY

INT64_MAX = (1 << 63) - 1

Finite = Annotated[float, Field(allow_inf_nan=False)]
TokenId = Annotated[int, Field(ge=0, le=INT64_MAX)]
Count = Annotated[int, Field(ge=0, le=INT64_MAX)]


class Wire(BaseModel):
    """Strict types; unknown fields are kept in `model_extra`."""

    model_config = ConfigDict(extra="allow", strict=True, protected_namespaces=())


class StreamOptions(Wire):
    include_usage: bool = False
    continuous_usage_stats: bool = False


def _one_or_many_strings(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(x, str) for x in value):
        return value
    raise ValueError("expected a string or a list of strings")


class Sampling(Wire):
    """What both routes share. A null is the same as a field that wasn't sent."""

    model: Annotated[str, Field(min_length=1, max_length=256, description="A deployment's name")]
    max_tokens: Count | None = None
    min_tokens: Count | None = None
    temperature: Annotated[Finite, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Finite, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=INT64_MAX, description="0 and -1 are off")] | None = None
    min_p: Annotated[Finite, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[Finite, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[Finite, Field(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[Finite, Field(ge=LEAST_PENALTY, le=MOST_PENALTY)] | None = None
    seed: Annotated[int, Field(ge=-INT64_MAX - 1, le=INT64_MAX, description="-1 is no seed")] | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    stop: Annotated[str | list[str] | None, BeforeValidator(_one_or_many_strings)] = None
    stop_token_ids: list[TokenId] | None = None
    logit_bias: dict[str, Finite] | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    request_id: Annotated[str, Field(max_length=256)] | None = None

    @property
    def choices(self) -> int:
        return self.n or 1

    @property
    def stops(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def continuous_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.continuous_usage_stats


def _prompt_form(value: Any) -> Any:
    """Accept the four forms and name them all in the refusal, where a union would name each arm's own."""
    if isinstance(value, str):
        return value
    is_good = isinstance(value, list) and (
        all(isinstance(x, str) for x in value)
        or all(_is_id(x) for x in value)
        or all(isinstance(x, list) and all(_is_id(i) for i in x) for x in value)
    )
    if not is_good:
        raise ValueError("expected a string, a list of strings, a list of token ids, or a list of such lists")
    return value


def _is_id(value: Any) -> bool:
    return type(value) is int and 0 <= value <= INT64_MAX


class CompletionRequest(Sampling):
    """`POST /v1/completions`. `max_tokens` defaults to 16."""

    prompt: Annotated[str | list[str] | list[int] | list[list[int]], BeforeValidator(_prompt_form)]
    logprobs: Count | None = None
    echo: bool | None = None

    @property
    def prompts(self) -> tuple[str | tuple[int, ...], ...]:
        """One entry a prompt, whatever the form it came in."""
        raw = self.prompt
        if isinstance(raw, str):
            return (raw,)
        if raw and isinstance(raw[0], int):
            return (tuple(x for x in raw if isinstance(x, int)),)
        return tuple(x if isinstance(x, str) else tuple(x) for x in raw if isinstance(x, str | list))


class TextPart(Wire):
    type: Literal["text"]
    text: str


def _content_form(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ValueError("expected a string or a list of text parts")
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(part.get("text"), str):
            raise ValueError(f"expected text parts only, got one of type {kind!r}; this model reads text")
    return value


class Message(Wire):
    """One turn. Fields beyond these reach the chat template as they are."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Annotated[str | list[TextPart] | None, BeforeValidator(_content_form)] = None
    name: str | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(p.text for p in self.content)
        return self.content or ""


class ChatRequest(Sampling):
    """`POST /v1/chat/completions`. Without `max_completion_tokens` the answer may use the room left in the
    context.
    """

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1, le=INT64_MAX)] | None = None
    logprobs: bool | None = None
    top_logprobs: Count | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
