"""Why the engine refuses a request or ends one: narrow classes under the platform's error tree."""

from __future__ import annotations

from common.errors import Conflict, ContextLengthExceeded, InvalidInput, Overloaded

INVALID_LOGITS = "invalid_logits"
"""The code of a request whose logits held NaN, or whose constraint allowed no token."""


class InvalidRequest(InvalidInput):
    """A value that no gateway should send: an id outside the vocabulary, a temperature of NaN."""


class PoolExceeded(ContextLengthExceeded):
    """The prompt and one token do not fit the KV pool even when it is empty."""

    def __init__(self, prompt_tokens: int, ceiling_tokens: int) -> None:
        super().__init__(
            f"the prompt has {prompt_tokens} tokens, and this deployment's cache holds {ceiling_tokens}; "
            "shorten the prompt or raise the deployment's KV ceiling",
            param="prompt",
        )
        self.prompt_tokens = prompt_tokens
        self.ceiling_tokens = ceiling_tokens


class DuplicateRequest(Conflict):
    code = "duplicate_request"

    def __init__(self, request_id: str) -> None:
        super().__init__(f"request {request_id!r} is already being served")
        self.request_id = request_id


class QueueFull(Overloaded):
    code = "queue_full"

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} sequences are waiting already; retry later")
        self.waiting = waiting
