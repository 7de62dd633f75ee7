"""The genome of one definition: which form of its term, and how its tile program is arranged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoopChoice:
    """A loop over an output axis in tiles of `block` points."""

    axis: str
    block: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """Loops outermost first; output axes without a loop are whole inside a tile.

    The first `parallel` loops are shared among threads. `stream` is the reduced axis that runs as a
    sequential loop in
    blocks of `stream_block`; every other reduced axis is whole inside a tile. `is_packed` reads weights from
    packed panels where that is possible; with `uses_tiles` bf16 products run on the CPU's matrix tiles.
    """

    loops: tuple[LoopChoice, ...]
    parallel: int = 1
    stream: str | None = None
    stream_block: int = 16
    is_packed: bool = True
    uses_tiles: bool = False
    partition: str = "chunk"

    def describe(self) -> str:
        loops = " ".join(f"{c.axis}/{c.block}" for c in self.loops) or "-"
        stream = f" stream {self.stream}/{self.stream_block}" if self.stream else ""
        packed = " tiles" if self.uses_tiles else " packed" if self.is_packed else ""
        return f"{loops} par {self.parallel} {self.partition}{stream}{packed}"
