"""Parameters: ranges, joined rules, defaults, clamps. Each refusal names its parameter."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from api.errors import UnsupportedParameter, invalid_body
from api.openai import params
from api.openai.rules import Limits, check_chat, check_completion, header_list, ignored_params
from api.openai.schema import ChatRequest, CompletionRequest
from batching.prompt.profile import SamplingDefaults
from common.errors import ContextLengthExceeded, InvalidInput

HELLO = [{"role": "user", "content": "hi"}]


def completion(**fields: Any) -> CompletionRequest:
    return CompletionRequest.model_validate({"model": "m", "prompt": "x", **fields})


def chat(**fields: Any) -> ChatRequest:
    return ChatRequest.model_validate({"model": "m", "messages": HELLO, **fields})


def refusal_of(**fields: Any) -> InvalidInput:
    """How the schema refuses a completion, as the caller sees it."""
    with pytest.raises(ValidationError) as caught:
        completion(**fields)
    return invalid_body(caught.value.errors())


@pytest.mark.pitfall("S11")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1),
        ("temperature", 5),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", "0.5"),
        ("top_p", 0),
        ("top_p", 1.1),
        ("top_k", 0.01),
        ("top_k", -2),
        ("top_k", True),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("repetition_penalty", 0),
        ("repetition_penalty", 1e-320),
        ("repetition_penalty", 1e308),
        ("top_k", 10**400),
        ("max_tokens", 10**400),
        ("prompt", [10**400]),
        ("stop_token_ids", [10**400]),
        ("repetition_penalty", float("inf")),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("n", 0),
        ("n", 129),
        ("n", 1.5),
        ("max_tokens", -1),
        ("min_tokens", -1),
        ("seed", 1 << 63),
        ("logprobs", -1),
        ("stop", [1]),
        ("stop", 5),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", ["1"]),
        ("logit_bias", {"1": float("nan")}),
        ("stream", "yes"),
        ("prompt", None),
        ("prompt", 5),
        ("prompt", ["a", 1]),
        ("prompt", [-1]),
        ("prompt", [[1], "a"]),
        ("prompt", {"text": "x"}),
        ("model", ""),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    assert (refusal_of(**{name: value}).param or "").startswith(name)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0},
        {"temperature": 1e-4},
        {"temperature": 2},
        {"top_k": 0},
        {"top_k": -1},
        {"seed": -1},
        {"seed": -(1 << 63)},
        {"n": 128},
        {"stop": None},
        {"stop": "x"},
        {"stop": ["a", "b", "c", "d"]},
        {"prompt": ["a", "b"]},
        {"prompt": [1, 2]},
        {"prompt": [[1], [2, 3]]},
        {"max_tokens": 0, "echo": True},
        {"logprobs": 20},
        {"best_of": 1},
        {"suffix": ""},
        {"response_format": {"type": "text"}},
    ],
)
def test_values_within_range_are_taken(fields: dict[str, Any]) -> None:
    request = completion(**fields)
    check_completion(request, Limits())
    assert ignored_params(request) == ()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[1], []]}, "prompt"),
        ({"prompt": ["x"] * 65}, "prompt"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"logprobs": 21}, "logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"min_tokens": 17}, "min_tokens"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"best_of": 2}, "best_of"),
        ({"suffix": "end"}, "suffix"),
        ({"guided_json": {}}, "guided_json"),
        ({"bad_words": ["x"]}, "bad_words"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"truncate_prompt_tokens": 5}, "truncate_prompt_tokens"),
        ({"cache_salt": "mine"}, "cache_salt"),
    ],
)
def test_what_a_completion_can_not_mean_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_completion(completion(**fields), Limits())
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"tools": []}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"echo": True}, "echo"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"min_tokens": 9, "max_completion_tokens": 4}, "min_tokens"),
    ],
)
def test_what_a_chat_can_not_mean_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_chat(chat(**fields), Limits())
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ([{"role": "wizard", "content": "x"}], "messages[0].role"),
        ([{"content": "x"}], "messages[0].role"),
        ([*HELLO, {"role": "user", "content": 5}], "messages[1].content"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            "messages[0].content",
        ),
    ],
)
def test_a_bad_message_is_refused_by_its_path(messages: list[Any], param: str) -> None:
    with pytest.raises(ValidationError) as caught:
        chat(messages=messages)
    assert invalid_body(caught.value.errors()).param == param


@pytest.mark.pitfall("S10")
def test_s10_a_fraction_as_top_k_is_a_400() -> None:
    assert refusal_of(top_k=0.01).param == "top_k"


def test_unknown_fields_are_told_and_known_harmless_ones_are_not() -> None:
    request = chat(zap=1, stream=True, stream_options={"include_usage": True, "odd": 1}, tool_choice="none")
    assert ignored_params(request) == ("stream_options.odd", "zap")


def test_a_bias_for_a_key_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(InvalidInput, match="token ids"):
        check_completion(completion(logit_bias={"9" * 5000: 1.0}), Limits())


def test_names_from_the_caller_make_a_header_that_can_be_sent() -> None:
    names = ("a\r\nset-cookie: b", "c,d", "é", *(f"{i:0100}" for i in range(5000)))
    header = header_list(names)
    assert header.startswith("a??set-cookie:?b, c?d, ?, 000")
    assert header.isprintable()
    assert len(header) < 2000
    assert header.endswith(" and 4983 more")


def test_an_unsupported_parameter_has_a_code_of_its_own() -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        check_chat(chat(tools=[{}]), Limits())
    assert caught.value.code == "unsupported_parameter"


@pytest.mark.pitfall("S23")
def test_s23_the_request_comes_before_the_model_and_the_model_before_openai() -> None:
    defaults = SamplingDefaults(temperature=0.1, top_k=64, repetition_penalty=1.2)
    values = params.sampling(completion(temperature=0.7), defaults)
    assert (values.temperature, values.top_k, values.repetition_penalty) == (0.7, 64, 1.2)
    assert (values.top_p, values.min_p, values.presence_penalty) == (1.0, 0.0, 0.0)


def test_a_zero_from_the_caller_is_no_missing_value() -> None:
    values = params.sampling(completion(temperature=0, top_k=0), SamplingDefaults(temperature=0.5, top_k=9))
    assert (values.temperature, values.top_k) == (0.0, 0)


def test_biases_are_sorted_and_clamped_and_no_seed_is_none() -> None:
    values = params.sampling(completion(logit_bias={"7": 500, "3": -500}, seed=-1), SamplingDefaults())
    assert (values.logit_bias, values.seed) == (((3, -100.0), (7, 100.0)), None)


def fit(prompt: int, asked: int | None, *, context: int = 100, pool: int = 1000, strict: bool = False) -> Any:
    return params.fit_length(prompt, asked, context, pool, is_strict=strict, prompt_param="prompt")


@pytest.mark.pitfall("S17")
def test_s17_a_length_is_clamped_to_the_room_and_says_so() -> None:
    assert fit(90, 5) == params.Fit(5)
    assert fit(90, 65_535) == params.Fit(10, clamped_from=65_535)
    assert fit(90, None) == params.Fit(10)
    assert fit(90, 50, pool=95) == params.Fit(5, clamped_from=50)
    assert fit(100, 0) == params.Fit(0)


@pytest.mark.pitfall("S17")
def test_s17_a_strict_caller_gets_every_number_instead() -> None:
    with pytest.raises(ContextLengthExceeded, match=r"90 prompt tokens and 50 .* 140.* 100.* 10 tokens fit"):
        fit(90, 50, strict=True)


@pytest.mark.parametrize("prompt", [100, 101])
def test_a_prompt_without_room_for_a_token_is_refused(prompt: int) -> None:
    with pytest.raises(ContextLengthExceeded):
        fit(prompt, 1)


@pytest.mark.pitfall("S6")
def test_s6_a_prompt_that_the_pool_can_never_hold_is_refused_at_once() -> None:
    with pytest.raises(params.PromptTooLarge, match="50"):
        fit(60, 1, pool=50)


def test_ids_outside_the_vocabulary_are_refused() -> None:
    params.check_ids((0, 99), 100, "prompt")
    with pytest.raises(InvalidInput, match="100"):
        params.check_ids((0, 100), 100, "prompt")
