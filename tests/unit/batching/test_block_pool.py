"""The KV pool conserves blocks and never gives out the null block."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batching.engine.pool import NULL_BLOCK, BlockPool


def take(pool: BlockPool, count: int) -> list[int]:
    blocks = list(islice(pool.free_blocks(), count))
    pool.allocate(blocks)
    return blocks


def test_blocks_for_rounds_up():
    pool = BlockPool(8, 16)
    assert [pool.blocks_for(n) for n in (0, 1, 16, 17)] == [0, 1, 1, 2]


def test_the_null_block_is_never_given_out():
    pool = BlockPool(5, 4)
    assert NULL_BLOCK not in take(pool, 5)
    assert pool.free_count == 0


def test_a_shared_block_is_free_only_after_its_last_release():
    pool = BlockPool(2, 4)
    blocks = take(pool, 1)
    pool.share(blocks)
    pool.release(blocks)
    assert pool.used_count == 1
    pool.release(blocks)
    assert pool.used_count == 0


def test_a_freed_block_is_reused_last():
    pool = BlockPool(3, 4)
    pool.release(take(pool, 1))
    assert list(pool.free_blocks()) == [2, 3, 1]


def test_a_double_release_is_caught():
    pool = BlockPool(2, 4)
    blocks = take(pool, 1)
    pool.release(blocks)
    with pytest.raises(AssertionError):
        pool.release(blocks)


@given(st.lists(st.tuples(st.sampled_from(["take", "share", "release"]), st.integers(0, 20)), max_size=60))
def test_free_and_used_always_add_up_and_nothing_is_given_twice(trace):
    pool, held = BlockPool(6, 4), []

    def act(action: str, number: int) -> None:
        if action == "take" and pool.free_count:
            (block,) = take(pool, 1)
            assert block not in held
            held.append(block)
        elif held:
            block = held[number % len(held)]
            (pool.share if action == "share" else pool.release)([block])
            (held.append if action == "share" else held.remove)(block)

    for action, number in trace:
        act(action, number)
        assert pool.used_count == len(set(held))
        assert pool.free_count + pool.used_count == 6
        assert all(pool.references(b) == held.count(b) for b in range(1, 7))
