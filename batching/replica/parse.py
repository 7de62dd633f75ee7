"""A caller's bytes to a `GenerateRequest` whose fields have their types; the engine checks their ranges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from common.errors import InvalidInput
from common.wire import GenerateRequest, Sampling

_NONE = type(None)
_NUMBER = (int, float)
_REQUEST_TYPES: dict[str, tuple[type, ...]] = {
    "request_id": (str,),
    "tenant_id": (str,),
    "max_tokens": (int,),
    "n": (int,),
    "min_tokens": (int,),
    "logprobs": (int, _NONE),
    "echo": (bool,),
}
_SAMPLING_TYPES: dict[str, tuple[type, ...]] = {
    **{f.name: _NUMBER for f in fields(Sampling) if f.name != "logit_bias"},
    "top_k": (int,),
    "seed": (int, _NONE),
}
_LARGEST_NUMBER = 1e300


def parse_request(body: bytes) -> GenerateRequest:
    """Raises: `InvalidInput` when `body` is not a request in `common.wire`'s form."""
    try:
        request = GenerateRequest.from_json(body)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput(f"the body is not a GenerateRequest: {error}") from error
    for owner, types in ((request, _REQUEST_TYPES), (request.sampling, _SAMPLING_TYPES)):
        for name, allowed in types.items():
            _check(type(getattr(owner, name)) in allowed, name)
    for name in _SAMPLING_TYPES.keys() - {"seed"}:
        value = getattr(request.sampling, name)
        _check(isinstance(value, float) or abs(value) < _LARGEST_NUMBER, name)
    _check(_all_are(int, request.prompt_ids), "prompt_ids")
    _check(_all_are(int, request.stop_ids), "stop_ids")
    _check(_all_are(str, request.stop), "stop")
    return request


def _all_are(kind: type, values: Iterable[object]) -> bool:
    return set(map(type, values)) <= {kind}


def _check(is_right: bool, name: str) -> None:
    if not is_right:
        raise InvalidInput(f"{name} has the wrong type", param=name)
