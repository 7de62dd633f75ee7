"""What both generating routes share: from a checked request and tokenized prompts to a running reply."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastapi import Request

from api import context
from api.catalog import Target
from api.context import Principal
from api.dispatch.settlement import Account
from api.openai import params
from api.openai.answers import Dialect, Envelope
from api.openai.events import Echo
from api.openai.pace import Pace
from api.openai.reply import Form, Reply
from api.openai.rules import Limits, header_list, ignored_params
from api.openai.schema import Sampling
from api.services import Services
from common.wire import GenerateRequest
from storage.billing import default_price_book
from storage.ledger import call_id

STRICT_HEADER = "x-candela-strict"


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids, and what an echo of them looks like."""

    ids: tuple[int, ...]
    echo: Echo | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """What differs between the two: names, the default length, how log-probabilities are asked for."""

    endpoint: str
    id_prefix: str
    prompt_param: str
    asked_tokens: int | None
    logprobs: int | None
    dialect: Callable[[Envelope], Dialect]


def limits(given: Services) -> Limits:
    settings = given.settings
    return Limits(settings.max_stop_strings, settings.max_logprobs, settings.max_completion_prompts)


async def launch(
    request: Request,
    given: Services,
    who: Principal,
    body: Sampling,
    target: Target,
    prompts: Sequence[Prompt],
    route: Route,
) -> Reply:
    """Check lengths and ids, tell the caller what was made of its parameters, open the account.

    Raises: ContextLengthExceeded, PromptTooLarge, InvalidInput, SpendCapReached.
    """
    here = context.of(request)
    calls = _calls(request, body, target, prompts, route, here.request_id, who.tenant_id)
    _announce(request, body, calls, route)
    account = Account(
        request_id=here.request_id,
        client_request_id=here.client_request_id or body.request_id,
        tenant_id=who.tenant_id,
        api_key_id=who.key.id,
        deployment_id=target.deployment.id,
        model=target.deployment.name,
        endpoint=route.endpoint,
        is_stream=bool(body.stream),
        arrived_at=here.arrived_at,
        prices=default_price_book(),
    )
    envelope = Envelope(
        id=route.id_prefix + here.request_id.removeprefix("req_"),
        created=int(here.arrived_at),
        model=target.deployment.name,
        fingerprint=target.fingerprint,
        choices=len(prompts) * body.choices,
        logprobs=route.logprobs,
        include_usage=body.include_usage,
        continuous_usage=body.continuous_usage,
    )
    given.metrics.overhead.observe(time.monotonic() - here.arrived_s)
    return Reply(
        await given.dispatcher.open(account, calls, here.arrived_s),
        route.dialect(envelope),
        Form(
            is_stream=bool(body.stream),
            include_usage=body.include_usage,
            n=body.choices,
            echoes=tuple(p.echo for p in prompts if p.echo is not None),
        ),
        given.dispatcher,
        Pace(given.metrics, target.deployment.name, here.arrived_s, time.monotonic),
        given.settings.hold_comment_after_s,
        given.settings.reader_silence_s,
    )


def _calls(
    request: Request,
    body: Sampling,
    target: Target,
    prompts: Sequence[Prompt],
    route: Route,
    request_id: str,
    tenant_id: str,
) -> list[GenerateRequest]:
    facts = target.facts
    stop_ids = tuple(body.stop_token_ids or ())
    params.check_ids(stop_ids, facts.vocab_size, "stop_token_ids")
    params.check_ids(tuple(int(k) for k in body.logit_bias or {}), facts.vocab_size, "logit_bias")
    is_strict = request.headers.get(STRICT_HEADER) == "1"
    sampling = params.sampling(body, facts.defaults)
    calls = []
    for number, prompt in enumerate(prompts):
        params.check_ids(prompt.ids, facts.vocab_size, route.prompt_param)
        fit = params.fit_length(
            len(prompt.ids),
            route.asked_tokens,
            target.context_tokens,
            target.deployment.kv_ceiling_tokens,
            is_strict=is_strict,
            prompt_param=route.prompt_param,
        )
        if fit.clamped_from is not None:
            name, now = params.length_name(body), fit.max_tokens
            context.of(request).headers["x-clamped-params"] = f"{name}={fit.clamped_from}->{now}"
        calls.append(
            GenerateRequest(
                request_id=call_id(request_id, number),
                tenant_id=tenant_id,
                prompt_ids=prompt.ids,
                max_tokens=fit.max_tokens,
                sampling=sampling,
                n=body.choices,
                min_tokens=min(body.min_tokens or 0, fit.max_tokens),
                stop=body.stops,
                stop_ids=stop_ids if body.ignore_eos else tuple(dict.fromkeys(facts.stop_ids + stop_ids)),
                logprobs=route.logprobs,
                echo=prompt.echo is not None,
            )
        )
    return calls


def _announce(request: Request, body: Sampling, calls: Sequence[GenerateRequest], route: Route) -> None:
    headers = context.of(request).headers
    longest = max(call.max_tokens for call in calls)
    headers["x-effective-params"] = params.effective_header(calls[0].sampling, longest)
    if ignored := ignored_params(body):
        headers["x-ignored-params"] = header_list(ignored)
