"""The KV pool: fixed blocks with reference counts and a free list that removes in O(1)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

NULL_BLOCK = 0
"""Names no block: pads tables, takes writes that nobody reads, is never allocated."""


class BlockPool:
    """Blocks 1..count. Free blocks are kept oldest first: a block rests as long as possible before reuse."""

    def __init__(self, count: int, block_size: int) -> None:
        self.count = count
        self.block_size = block_size
        self._references = [0] * (count + 1)
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, count + 1))

    @property
    def free_count(self) -> int:
        return len(self._free)

    @property
    def used_count(self) -> int:
        return self.count - len(self._free)

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold `tokens` positions."""
        return -(-tokens // self.block_size)

    def free_blocks(self) -> Iterator[int]:
        """Free blocks in the order in which they will be reused."""
        return iter(self._free)

    def references(self, block: int) -> int:
        return self._references[block]

    def allocate(self, blocks: Iterable[int]) -> None:
        """Take these free blocks, each with one reference."""
        for block in blocks:
            del self._free[block]
            self._references[block] = 1

    def share(self, blocks: Iterable[int]) -> None:
        """Add a reference to blocks in use."""
        for block in blocks:
            assert self._references[block] > 0, "only a block in use can be shared"
            self._references[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Drop a reference to each; a block without any is free again."""
        for block in blocks:
            assert self._references[block] > 0, "a block is released as often as it was taken"
            self._references[block] -= 1
            if self._references[block] == 0:
                self._free[block] = None
