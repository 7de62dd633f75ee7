"""How much a replica needs, how many more fit on a node, and who gives way. Pure: sizes in, counts out.

Replicas of one artifact map the same weight files, so a node pays for those pages once. Choosing counts over
time is the autoscaler's; starting processes is the launcher's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from common.errors import PlatformError


class DoesNotFit(PlatformError):
    """A deployment that no empty node of this size could ever serve."""

    code = "does_not_fit"


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one replica occupies. `weights_bytes` is shared by replicas with the same `artifact`."""

    artifact: str
    weights_bytes: int
    private_bytes: int
    cores: float


@dataclass(frozen=True, slots=True)
class Node:
    """What may be promised in all; `cores` already includes any overcommitment."""

    memory_bytes: int
    cores: float


@dataclass(frozen=True, slots=True)
class KvShape:
    """The paged cache as the artifact was compiled: bytes and positions of a block, the longest context."""

    bytes_per_block: int
    block_size: int
    max_context: int
    max_sequences: int


def kv_blocks(shape: KvShape, budget_bytes: int) -> int:
    """Blocks a replica allocates: every sequence at full context, or what the budget pays for.

    Raises:
        DoesNotFit: the budget holds no block at all.
    """
    blocks_per_sequence = -(-shape.max_context // shape.block_size)
    affordable = budget_bytes // shape.bytes_per_block
    if affordable < 1:
        raise DoesNotFit(
            f"one KV block needs {shape.bytes_per_block} bytes and the budget is {budget_bytes}: "
            "raise CANDELA_KV_BUDGET_BYTES"
        )
    return min(blocks_per_sequence * shape.max_sequences, affordable)


def fits(node: Node, placed: Sequence[Footprint], wanted: Footprint) -> int:
    """How many more replicas like `wanted` the node takes beside those already `placed`."""
    free_bytes = node.memory_bytes - used_memory(placed)
    if wanted.artifact not in {p.artifact for p in placed}:
        free_bytes -= wanted.weights_bytes
    free_cores = node.cores - sum(p.cores for p in placed)
    if free_bytes < wanted.private_bytes or free_cores < wanted.cores:
        return 0
    return min(_times(free_bytes, wanted.private_bytes), _times(free_cores, wanted.cores))


def used_memory(placed: Sequence[Footprint]) -> int:
    """Bytes promised: each artifact's weights once, and every replica's private part."""
    weights = {p.artifact: p.weights_bytes for p in placed}
    return sum(weights.values()) + sum(p.private_bytes for p in placed)


@dataclass(frozen=True, slots=True)
class Idler:
    """A replica that may give way: it serves nothing and its deployment's minimum allows its going."""

    replica_id: str
    footprint: Footprint
    idle_s: float


def who_gives_way(
    node: Node, placed: Sequence[Footprint], wanted: Footprint, idlers: Sequence[Idler]
) -> tuple[str, ...]:
    """The fewest longest-idle replicas whose going makes room for one `wanted`; empty when that cannot help.

    A deployment with demand must not wait for another's idle timeout.
    """
    left = list(placed)
    leaving: list[str] = []
    for idler in sorted(idlers, key=lambda i: (-i.idle_s, i.replica_id)):
        if fits(node, left, wanted) > 0:
            break
        left.remove(idler.footprint)
        leaving.append(idler.replica_id)
    return tuple(leaving) if fits(node, left, wanted) > 0 else ()


def check_fits_alone(node: Node, wanted: Footprint) -> None:
    """Raises: `DoesNotFit`, with the figures, when even an empty node is too small."""
    if fits(node, (), wanted) > 0:
        return
    needed = wanted.weights_bytes + wanted.private_bytes
    raise DoesNotFit(
        f"a replica needs {needed >> 20} MiB and {wanted.cores:g} cores; "
        f"this node offers {node.memory_bytes >> 20} MiB and {node.cores:g} cores"
    )


def _times(free: float, each: float) -> int:
    return int(free / each) if each > 0 else 1_000_000
