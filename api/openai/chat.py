"""`POST /v1/chat/completions`."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.responses import Response

from api import routing
from api.auth import Caller
from api.openai.answers import Chat
from api.openai.launch import Prompt, Route, launch, limits
from api.openai.rules import check_chat
from api.openai.schema import ChatRequest
from api.services import Given

router = routing.router()


@router.post(
    "/v1/chat/completions",
    tags=["openai"],
    responses={200: {"content": {"application/json": {}, "text/event-stream": {}}}},
)
async def chat_completions(body: ChatRequest, request: Request, given: Given, who: Caller) -> Response:
    """Answer a conversation, whole or as a stream."""
    check_chat(body, limits(given))
    target = await given.catalog.target(who.tenant_id, body.model)
    rendered = await given.prompts.run(
        str(target.facts.tokenizer_dir),
        {
            "op": "chat",
            "messages": [_message(m.model_dump(exclude_none=True)) for m in body.messages],
            "variables": body.chat_template_kwargs or {},
        },
        param="messages",
    )
    asked = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    route = Route(
        endpoint="/v1/chat/completions",
        id_prefix="chatcmpl-",
        prompt_param="messages",
        asked_tokens=asked,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        dialect=Chat,
    )
    return await launch(request, given, who, body, target, [Prompt(tuple(rendered["ids"]))], route)


def _message(raw: dict[str, Any]) -> dict[str, Any]:
    """A message as templates know it: content is never absent, and a `developer` speaks as the system."""
    raw.setdefault("content", "")
    if raw["role"] == "developer":
        raw["role"] = "system"
    return raw
