"""What the engine refuses before it queues anything. The gateway checks most of it first, in its words."""

from __future__ import annotations

from math import isfinite

from batching.engine.errors import DuplicateRequest, InvalidRequest, PoolExceeded, QueueFull
from batching.engine.state import EngineState
from common.errors import ContextLengthExceeded
from common.wire import GenerateRequest, Sampling


def admit(state: EngineState, request: GenerateRequest, vocab_size: int) -> None:
    """Check that `request` can be served by this engine at all, and that there is room to wait.

    Raises:
        InvalidRequest, ContextLengthExceeded, PoolExceeded: it never can.
        DuplicateRequest, QueueFull: it cannot now.
    """
    _check_counts(request)
    _check_sampling(request.sampling)
    _check_ids(request, vocab_size)
    _check_room(state, request)
    if request.request_id in state.requests:
        raise DuplicateRequest(request.request_id)
    if len(state.waiting) + request.n > state.config.max_waiting:
        raise QueueFull(len(state.waiting))


def _check_counts(request: GenerateRequest) -> None:
    _require(len(request.prompt_ids) > 0, "the prompt must have at least one token", "prompt")
    _require(request.n >= 1, "n must be at least 1", "n")
    least = 0 if request.echo else 1
    _require(request.max_tokens >= least, f"max_tokens must be at least {least}", "max_tokens")
    in_order = 0 <= request.min_tokens <= request.max_tokens
    _require(in_order, "min_tokens must lie between 0 and max_tokens", "min_tokens")
    _require("" not in request.stop, "a stop string must not be empty", "stop")
    _require(request.logprobs is None or request.logprobs >= 0, "logprobs must not be negative", "logprobs")


def _check_sampling(sampling: Sampling) -> None:
    numbers = (
        ("temperature", sampling.temperature, 0.0, float("inf")),
        ("top_p", sampling.top_p, 0.0, 1.0),
        ("min_p", sampling.min_p, 0.0, 1.0),
        ("presence_penalty", sampling.presence_penalty, -float("inf"), float("inf")),
        ("frequency_penalty", sampling.frequency_penalty, -float("inf"), float("inf")),
        ("repetition_penalty", sampling.repetition_penalty, 0.0, float("inf")),
    )
    for name, value, low, high in numbers:
        _require(isfinite(value) and low <= value <= high, f"{name} is out of range: {value}", name)
    _require(sampling.top_p > 0.0, "top_p must be above 0", "top_p")
    _require(sampling.repetition_penalty > 0.0, "repetition_penalty must be above 0", "repetition_penalty")
    is_count = isinstance(sampling.top_k, int) and sampling.top_k >= 0
    _require(is_count, f"top_k must be a whole number, not {sampling.top_k}", "top_k")
    _require(all(isfinite(b) for _, b in sampling.logit_bias), "a bias must be finite", "logit_bias")


def _check_ids(request: GenerateRequest, vocab_size: int) -> None:
    biased = tuple(i for i, _ in request.sampling.logit_bias)
    named = (("prompt", request.prompt_ids), ("stop_token_ids", request.stop_ids), ("logit_bias", biased))
    for name, ids in named:
        is_known = not ids or (min(ids) >= 0 and max(ids) < vocab_size)
        _require(is_known, f"{name} has an id outside the vocabulary of {vocab_size}", name)


def _check_room(state: EngineState, request: GenerateRequest) -> None:
    """The prompt and its first token must fit the context and the empty pool."""
    needed = len(request.prompt_ids) + min(request.max_tokens, 1)
    if needed > state.max_context:
        raise ContextLengthExceeded(
            f"the prompt has {len(request.prompt_ids)} tokens, and the context is {state.max_context}",
            param="prompt",
        )
    if needed > state.ceiling_tokens:
        raise PoolExceeded(len(request.prompt_ids), state.ceiling_tokens)


def _require(is_met: bool, message: str, param: str) -> None:
    if not is_met:
        raise InvalidRequest(message, param=param)
