"""What fits on a node, how large the KV cache is, and who gives way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.placement import (
    DoesNotFit,
    Footprint,
    Idler,
    KvShape,
    Node,
    check_fits_alone,
    fits,
    kv_blocks,
    used_memory,
    who_gives_way,
)

GIB = 1 << 30
SMALL = Footprint(artifact="s", weights_bytes=GIB, private_bytes=GIB, cores=1.0)
OTHER = Footprint(artifact="o", weights_bytes=GIB, private_bytes=GIB, cores=1.0)
SHAPE = KvShape(bytes_per_block=1000, block_size=16, max_context=100, max_sequences=4)


def test_memory_limits_how_many_fit() -> None:
    assert fits(Node(memory_bytes=3 * GIB, cores=16), (), SMALL) == 2


def test_weights_of_one_artifact_are_paid_once() -> None:
    assert used_memory([SMALL, SMALL, OTHER]) == 5 * GIB
    assert fits(Node(memory_bytes=3 * GIB, cores=16), [SMALL], SMALL) == 1


def test_another_artifact_brings_its_own_weights() -> None:
    assert fits(Node(memory_bytes=3 * GIB, cores=16), [SMALL], OTHER) == 0


def test_cores_limit_how_many_fit() -> None:
    assert fits(Node(memory_bytes=100 * GIB, cores=2.5), (), SMALL) == 2


@given(st.integers(0, 40), st.integers(0, 12), st.integers(0, 4))
def test_placing_what_fits_never_overfills(memory_gib: int, cores: int, before: int) -> None:
    node = Node(memory_bytes=memory_gib * GIB, cores=cores)
    placed = [OTHER] * min(before, fits(node, (), OTHER))
    after = [*placed, *[SMALL] * fits(node, placed, SMALL)]
    assert used_memory(after) <= node.memory_bytes
    assert sum(p.cores for p in after) <= node.cores


def test_kv_blocks_hold_every_sequence_at_full_context_when_affordable() -> None:
    assert kv_blocks(SHAPE, budget_bytes=1_000_000) == 7 * 4


def test_kv_blocks_stay_within_the_budget() -> None:
    assert kv_blocks(SHAPE, budget_bytes=5_500) == 5


def test_a_budget_below_one_block_is_refused() -> None:
    with pytest.raises(DoesNotFit, match="CANDELA_KV_BUDGET_BYTES"):
        kv_blocks(SHAPE, budget_bytes=999)


def test_the_longest_idle_replica_gives_way_first() -> None:
    node = Node(memory_bytes=4 * GIB, cores=16)
    idlers = [Idler("young", OTHER, 5.0), Idler("old", OTHER, 50.0)]
    assert who_gives_way(node, [OTHER, OTHER], SMALL, idlers) == ("old",)


def test_nobody_gives_way_when_it_would_not_help() -> None:
    node = Node(memory_bytes=GIB, cores=16)
    assert who_gives_way(node, [OTHER], SMALL, [Idler("old", OTHER, 50.0)]) == ()


def test_nobody_gives_way_while_there_is_room() -> None:
    node = Node(memory_bytes=40 * GIB, cores=16)
    assert who_gives_way(node, [OTHER], SMALL, [Idler("old", OTHER, 50.0)]) == ()


def test_a_replica_larger_than_the_node_is_refused_with_figures() -> None:
    with pytest.raises(DoesNotFit, match=r"2048 MiB and 1 cores.*1024 MiB and 4 cores"):
        check_fits_alone(Node(memory_bytes=GIB, cores=4), SMALL)
