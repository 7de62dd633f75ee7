"""From a checked request to what the engine gets: defaults in their order, clamps, and what the caller is
told. Pure.

Order of defaults: the request, then the model's generation_config.json, then OpenAI's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from api.openai.schema import Sampling as SamplingRequest
from batching.prompt.profile import SamplingDefaults
from common import wire
from common.errors import ContextLengthExceeded, InvalidInput

OPENAI_DEFAULTS: Mapping[str, float] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
}
BIAS_LIMIT = 100.0


class PromptTooLarge(InvalidInput):
    """Within the model's context, but more than the deployment's KV pool can ever hold."""

    code = "prompt_too_large"


@dataclass(frozen=True, slots=True)
class Fit:
    """The length of answer that fits; `clamped_from` is what the caller had asked for, when that was more."""

    max_tokens: int
    clamped_from: int | None = None


def sampling(request: SamplingRequest, defaults: SamplingDefaults) -> wire.Sampling:
    """Effective sampling values; `logit_bias` is clamped to OpenAI's range."""
    values = {name: _value(request, defaults, name) for name in OPENAI_DEFAULTS}
    bias = tuple(
        (int(token), min(max(value, -BIAS_LIMIT), BIAS_LIMIT))
        for token, value in sorted((request.logit_bias or {}).items(), key=lambda kv: int(kv[0]))
    )
    return wire.Sampling(
        temperature=values["temperature"],
        top_p=values["top_p"],
        top_k=max(int(values["top_k"]), 0),
        min_p=values["min_p"],
        presence_penalty=values["presence_penalty"],
        frequency_penalty=values["frequency_penalty"],
        repetition_penalty=values["repetition_penalty"],
        seed=None if request.seed == -1 else request.seed,
        logit_bias=bias,
    )


def fit_length(
    prompt_tokens: int,
    asked: int | None,
    context_tokens: int,
    kv_ceiling_tokens: int,
    *,
    is_strict: bool,
    prompt_param: str,
) -> Fit:
    """How many tokens may follow the prompt: what was asked, at most the room that context and KV pool leave.

    Raises: ContextLengthExceeded, PromptTooLarge: no room for one token; with `is_strict` also when the
        length asked for does not fit.
    """
    needed = 1 if asked is None else min(asked, 1)
    if prompt_tokens + needed > context_tokens:
        raise ContextLengthExceeded(
            f"this model's context is {context_tokens} tokens, the prompt has {prompt_tokens}; "
            f"shorten it to at most {context_tokens - 1}",
            param=prompt_param,
        )
    if prompt_tokens + needed > kv_ceiling_tokens:
        raise PromptTooLarge(
            f"the prompt has {prompt_tokens} tokens, this deployment's KV pool holds {kv_ceiling_tokens}; "
            "shorten it or deploy with a higher kv_ceiling_tokens",
            param=prompt_param,
        )
    room = min(context_tokens, kv_ceiling_tokens) - prompt_tokens
    if asked is None or asked <= room:
        return Fit(room if asked is None else asked)
    if is_strict:
        raise ContextLengthExceeded(
            f"{prompt_tokens} prompt tokens and {asked} answer tokens are {prompt_tokens + asked}; "
            f"the context is {context_tokens}, the KV pool {kv_ceiling_tokens}: at most {room} tokens fit",
            param="max_tokens",
        )
    return Fit(room, clamped_from=asked)


def check_ids(ids: tuple[int, ...], vocab_size: int, param: str) -> None:
    """Raises: InvalidInput: an id that the model's vocabulary has not."""
    worst = max(ids, default=0)
    if worst >= vocab_size:
        raise InvalidInput(f"token id {worst} is outside the vocabulary of {vocab_size}", param=param)


def length_name(request: SamplingRequest) -> str:
    """The field in which the caller asked for a length."""
    return "max_completion_tokens" if getattr(request, "max_completion_tokens", None) else "max_tokens"


def effective_header(values: wire.Sampling, max_tokens: int) -> str:
    """What the answer was made with, defaults included, as `name=value` pairs."""
    shown: dict[str, float | int | None] = {
        "temperature": values.temperature,
        "top_p": values.top_p,
        "top_k": values.top_k,
        "min_p": values.min_p,
        "presence_penalty": values.presence_penalty,
        "frequency_penalty": values.frequency_penalty,
        "repetition_penalty": values.repetition_penalty,
        "seed": values.seed,
        "max_tokens": max_tokens,
    }
    return "; ".join(
        f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in shown.items() if v is not None
    )


def _value(request: SamplingRequest, defaults: SamplingDefaults, name: str) -> float:
    sent = getattr(request, name)
    recommended = getattr(defaults, name, None)
    return float(next(v for v in (sent, recommended, OPENAI_DEFAULTS[name]) if v is not None))
