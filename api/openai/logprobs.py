"""The two forms in which OpenAI reports log-probabilities: chat's list of objects, completions' parallel
lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from api.openai.events import Scored, Unscored
from common.wire import TokenLogprob

FLOOR = -9999.0
"""What stands for minus infinity: JSON has no word for it."""


def chat_logprobs(tokens: Sequence[Scored], alternatives: int) -> dict[str, Any]:
    content = [
        {
            **_chat_token(t.text, t.logprob),
            "top_logprobs": [_chat_token(text, p) for _, text, p in t.top[:alternatives]],
        }
        for t in tokens
        if isinstance(t, TokenLogprob)
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(tokens: Sequence[Scored], alternatives: int, offset: int) -> dict[str, Any]:
    """`offset` is where the first token's text starts, in characters of the choice's whole text.

    The chosen token is always among its alternatives, so there may be one more than asked for.
    """
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.text)
    return {
        "tokens": [t.text for t in tokens],
        "token_logprobs": [None if isinstance(t, Unscored) else _finite(t.logprob) for t in tokens],
        "top_logprobs": [_top(t, alternatives) for t in tokens] if alternatives else None,
        "text_offset": offsets,
    }


def _top(token: Scored, alternatives: int) -> dict[str, float] | None:
    if isinstance(token, Unscored):
        return None
    top = {text: _finite(p) for _, text, p in token.top[:alternatives]}
    top.setdefault(token.text, _finite(token.logprob))
    return top


def _chat_token(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": _finite(logprob), "bytes": list(text.encode())}


def _finite(logprob: float) -> float:
    return max(logprob, FLOOR)
