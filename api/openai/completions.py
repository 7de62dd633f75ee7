"""`POST /v1/completions`: one or many prompts, as text or as token ids."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from api import routing
from api.auth import Caller
from api.catalog import Target
from api.openai.answers import Completion
from api.openai.events import Echo
from api.openai.launch import Prompt, Route, launch, limits
from api.openai.params import check_ids
from api.openai.rules import check_completion
from api.openai.schema import CompletionRequest
from api.services import Given, Services

router = routing.router()

DEFAULT_TOKENS = 16


@router.post(
    "/v1/completions",
    tags=["openai"],
    responses={200: {"content": {"application/json": {}, "text/event-stream": {}}}},
)
async def completions(body: CompletionRequest, request: Request, given: Given, who: Caller) -> Response:
    """Continue each prompt, whole or as a stream."""
    check_completion(body, limits(given))
    target = await given.catalog.target(who.tenant_id, body.model)
    prompts = [await _prompt(given, target, prompt, body) for prompt in body.prompts]
    route = Route(
        endpoint="/v1/completions",
        id_prefix="cmpl-",
        prompt_param="prompt",
        asked_tokens=DEFAULT_TOKENS if body.max_tokens is None else body.max_tokens,
        logprobs=body.logprobs,
        dialect=Completion,
    )
    return await launch(request, given, who, body, target, prompts, route)


async def _prompt(
    given: Services, target: Target, raw: str | tuple[int, ...], body: CompletionRequest
) -> Prompt:
    """Tokenize text; ids pass as they are. An echo needs the prompt's text, and its first token's for
    scores.
    """
    folder = str(target.facts.tokenizer_dir)
    ids = raw if isinstance(raw, tuple) else None
    if ids is None:
        ids = tuple((await given.prompts.run(folder, {"op": "text", "text": raw}, "prompt"))["ids"])
    if not body.echo:
        return Prompt(ids)
    check_ids(ids, target.facts.vocab_size, "prompt")
    shown = await given.prompts.run(folder, {"op": "decode", "ids": ids}, "prompt")
    text = raw if isinstance(raw, str) else shown["text"]
    return Prompt(ids, Echo(text, shown["first"] if body.logprobs is not None else None))
