"""Checks that join several fields or need the operator's limits, and the list of what we can't honour yet.

A parameter that would change the answer's meaning is never ignored: it is refused by name. Fields nobody
knows are ignored and listed in `x-ignored-params`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.errors import UnsupportedParameter
from api.openai.schema import ChatRequest, CompletionRequest, Sampling
from common.errors import InvalidInput

_UNPRINTABLE = re.compile(r"[^\x21-\x2b\x2d-\x7e]")
_MOST_NAMES = 20
_LONGEST_NAME = 64
_TOKEN_ID = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Limits:
    """What the operator allows beyond the schema's own ranges."""

    max_stop_strings: int = 4
    max_logprobs: int = 20
    max_completion_prompts: int = 64


def check_chat(request: ChatRequest, limits: Limits) -> None:
    """Raises: `InvalidInput` naming the parameter, `UnsupportedParameter`."""
    _check_common(request, limits)
    if request.top_logprobs is not None and not request.logprobs:
        raise InvalidInput("'top_logprobs' needs 'logprobs' to be true", param="top_logprobs")
    if (request.top_logprobs or 0) > limits.max_logprobs:
        raise InvalidInput(f"'top_logprobs' must be at most {limits.max_logprobs}", param="top_logprobs")
    if request.max_tokens == 0:
        raise InvalidInput("'max_tokens' must be at least 1", param="max_tokens")
    if request.add_generation_prompt is False and not request.continue_final_message:
        raise UnsupportedParameter("add_generation_prompt", "a chat answer always follows the prompt")
    if request.continue_final_message:
        raise UnsupportedParameter("continue_final_message", "send the text to /v1/completions instead")
    _check_min_tokens(request.min_tokens, request.max_completion_tokens or request.max_tokens)


def check_completion(request: CompletionRequest, limits: Limits) -> None:
    """Raises: `InvalidInput` naming the parameter, `UnsupportedParameter`."""
    _check_common(request, limits)
    if not request.prompts or any(not p for p in request.prompts):
        raise InvalidInput("'prompt' must not be empty", param="prompt")
    if len(request.prompts) > limits.max_completion_prompts:
        most = limits.max_completion_prompts
        raise InvalidInput(f"'prompt' may hold at most {most} prompts", param="prompt")
    if (request.logprobs or 0) > limits.max_logprobs:
        raise InvalidInput(f"'logprobs' must be at most {limits.max_logprobs}", param="logprobs")
    if request.max_tokens == 0 and not request.echo:
        raise InvalidInput("'max_tokens' may be 0 only with 'echo'", param="max_tokens")
    _check_min_tokens(request.min_tokens, 16 if request.max_tokens is None else request.max_tokens)


def ignored_params(request: Sampling) -> tuple[str, ...]:
    """Names of fields that had no effect, sorted: unknown ones, also inside messages and stream options."""
    names = {k for k in request.model_extra or {} if k not in _CONDITIONAL and k != "best_of"}
    if request.stream_options is not None:
        names |= {f"stream_options.{k}" for k in request.stream_options.model_extra or {}}
    return tuple(sorted(names))


def header_list(names: Sequence[str]) -> str:
    """Names that the caller made up, as a header's value: printable ASCII, no commas, not too many."""
    shown = [_UNPRINTABLE.sub("?", name)[:_LONGEST_NAME] for name in names[:_MOST_NAMES]]
    left_out = len(names) - len(shown)
    return ", ".join([*shown, f"and {left_out} more"] if left_out else shown)


def _check_common(request: Sampling, limits: Limits) -> None:
    _refuse_unsupported(request)
    if request.stream_options is not None and not request.stream:
        raise InvalidInput("'stream_options' is allowed only with 'stream': true", param="stream_options")
    if len(request.stops) > limits.max_stop_strings:
        most = limits.max_stop_strings
        raise InvalidInput(f"'stop' may hold at most {most} strings", param="stop")
    if any(not s for s in request.stops):
        raise InvalidInput("'stop' must not hold an empty string", param="stop")
    for key in request.logit_bias or {}:
        if _TOKEN_ID.fullmatch(key) is None:
            raise InvalidInput(f"'logit_bias' keys are token ids, got {key!r:.40}", param="logit_bias")


def _check_min_tokens(least: int | None, most: int | None) -> None:
    if least and most is not None and least > most:
        raise InvalidInput(f"'min_tokens' ({least}) is above the largest length ({most})", param="min_tokens")


@dataclass(frozen=True, slots=True)
class _Condition:
    """A field we know: the values that change nothing, and why any other is refused."""

    harmless: tuple[Any, ...]
    why: str


_NONE = (None,)
_CONSTRAINED = "constrained output is not available on this server"
_TOOLS = "tool calls are not available on this server"
_CONDITIONAL: Mapping[str, _Condition] = {
    "tools": _Condition(_NONE, _TOOLS),
    "tool_choice": _Condition((None, "none"), _TOOLS),
    "parallel_tool_calls": _Condition((None, True, False), _TOOLS),
    "functions": _Condition(_NONE, _TOOLS),
    "function_call": _Condition((None, "none"), _TOOLS),
    "response_format": _Condition((None, {"type": "text"}), _CONSTRAINED),
    "structured_outputs": _Condition(_NONE, _CONSTRAINED),
    "guided_json": _Condition(_NONE, _CONSTRAINED),
    "guided_regex": _Condition(_NONE, _CONSTRAINED),
    "guided_choice": _Condition(_NONE, _CONSTRAINED),
    "guided_grammar": _Condition(_NONE, _CONSTRAINED),
    "grammar": _Condition(_NONE, _CONSTRAINED),
    "json_schema": _Condition(_NONE, _CONSTRAINED),
    "regex": _Condition(_NONE, _CONSTRAINED),
    "modalities": _Condition((None, ["text"]), "answers are text"),
    "audio": _Condition(_NONE, "answers are text"),
    "prediction": _Condition(_NONE, "predicted outputs are not available on this server"),
    "suffix": _Condition((None, ""), "this model has no fill-in-the-middle tokens"),
    "bad_words": _Condition((None, []), "use 'logit_bias' with -100 on single tokens"),
    "allowed_token_ids": _Condition(_NONE, "use 'logit_bias'"),
    "use_beam_search": _Condition((None, False), "answers are sampled"),
    "prompt_logprobs": _Condition(_NONE, "use 'echo' with 'logprobs' on /v1/completions"),
    "truncate_prompt_tokens": _Condition(_NONE, "shorten the prompt before sending it"),
    "return_token_ids": _Condition((None, False), "answers are text"),
    "chat_template": _Condition(_NONE, "the template is the model's own"),
    "documents": _Condition((None, []), "the template gets messages only"),
    "priority": _Condition((None, 0), "requests are served in order of arrival"),
    "echo": _Condition((None, False), "it belongs to /v1/completions"),
    "cache_salt": _Condition(_NONE, "the server sets it from the tenant"),
}


def _refuse_unsupported(request: Sampling) -> None:
    extra = request.model_extra or {}
    if extra.get("best_of") not in (None, request.choices):
        raise UnsupportedParameter("best_of", "leave it out, or set it equal to 'n'")
    for name, condition in _CONDITIONAL.items():
        if name in extra and extra[name] not in condition.harmless:
            raise UnsupportedParameter(name, condition.why)
