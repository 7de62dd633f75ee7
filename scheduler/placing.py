"""From a deployment and its build to what one replica gets: blocks, limits, footprint. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.observe import ServingShape
from scheduler.placement import Footprint, Node, kv_blocks
from storage.records import Build, Deployment


@dataclass(frozen=True, slots=True)
class NodeRules:
    """The node and how it is shared out; `overhead_bytes` is a replica's interpreter, buffers and stacks."""

    node: Node
    kv_budget_bytes: int
    cores_per_replica: float
    overhead_bytes: int


@dataclass(frozen=True, slots=True)
class Sizing:
    """What each replica of a deployment gets; the same for all of them."""

    kv_blocks: int
    kv_ceiling_tokens: int
    max_sequences: int
    max_batched_tokens: int
    memory_limit_bytes: int
    footprint: Footprint


def size(deployment: Deployment, build: Build, shape: ServingShape, rules: NodeRules) -> Sizing:
    """The deployment's ceiling, cut to whole blocks and to what the budget and the model can use.

    Raises: DoesNotFit: not even one block.
    """
    asked = max(deployment.kv_ceiling_tokens // shape.kv.block_size, 1)
    blocks = min(asked, kv_blocks(shape.kv, rules.kv_budget_bytes))
    private = (blocks + 1) * shape.kv.bytes_per_block + rules.overhead_bytes  # one more: the null block
    return Sizing(
        kv_blocks=blocks,
        kv_ceiling_tokens=blocks * shape.kv.block_size,
        max_sequences=shape.kv.max_sequences,
        max_batched_tokens=shape.max_batched_tokens,
        memory_limit_bytes=private + shape.weights_bytes,
        footprint=Footprint(build.build_key, shape.weights_bytes, private, rules.cores_per_replica),
    )
