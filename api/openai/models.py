"""`/v1/models`: the deployments that the key may call."""

from __future__ import annotations

from typing import Any

from api import routing
from api.auth import Caller
from api.catalog import Target
from api.services import Given

router = routing.router()


@router.get("/v1/models", tags=["openai"])
async def list_models(given: Given, who: Caller) -> dict[str, Any]:
    found = await given.catalog.targets(who.tenant_id)
    return {"object": "list", "data": [model_json(target) for target in found]}


@router.get("/v1/models/{model}", tags=["openai"])
async def get_model(model: str, given: Given, who: Caller) -> dict[str, Any]:
    return model_json(await given.catalog.target(who.tenant_id, model))


def model_json(target: Target) -> dict[str, Any]:
    """`max_model_len` is what fits both the context and the KV pool; `root` is the model behind the name."""
    deployment, info = target.deployment, target.build.info
    longest = min(target.context_tokens, deployment.kv_ceiling_tokens)
    return {
        "id": deployment.name,
        "object": "model",
        "created": int(deployment.created_at),
        "owned_by": "candela",
        "root": deployment.model_name,
        "parent": None,
        "max_model_len": longest,
        "meta": {
            "n_ctx_train": target.facts.context_tokens,
            "n_params": info.get("parameters"),
            "size": info.get("weights_bytes"),
        },
    }
