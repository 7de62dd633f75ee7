"""L3: tile programs. A kernel is a nest of loops over tiles, with statements placed as far out as they can
go.

In an expression `IDX(a)` is the absolute index along `a`, a `TILE` term reads a tile buffer at the current
point of
its axes, and a `LOAD` reads memory. A tile axis runs over `block` points, fewer in the last tile of its
extent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from compiler.artifact.layouts import WeightLayout
from compiler.ir.dim import Size
from compiler.ir.dtype import DType
from compiler.lower.terms import Kind, Term


@dataclass(frozen=True, slots=True)
class Tile:
    """A scratch buffer; one element for each point of its axes, row-major over their blocks."""

    name: str
    axes: tuple[str, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class Direct:
    """A contraction operand read where it lies: element (row, col) is at `load` plus strides, in elements.

    Along `grain_axis` that holds only for runs of `grain` points, each with an address of its own.
    """

    load: Term
    row: str | None
    col: str | None
    row_stride: int
    col_stride: int
    grain_axis: str | None = None
    grain: int = 0


@dataclass(frozen=True, slots=True)
class Packed:
    """A weight `[columns, k]` read from panels of packed columns; see `codegen.layout`."""

    load: Term
    column: str
    k: str
    layout: WeightLayout


Operand: TypeAlias = Tile | Direct | Packed


@dataclass(frozen=True, slots=True)
class Fill:
    """Set every element of `tile`."""

    tile: Tile
    value: float


@dataclass(frozen=True, slots=True)
class Copy:
    tile: Tile
    source: Tile


@dataclass(frozen=True, slots=True)
class Compute:
    """`tile[axes] = expr`."""

    tile: Tile
    expr: Term


@dataclass(frozen=True, slots=True)
class Dot:
    """`tile[m, n] (+)= sum_k a[m, k] * b[k, n]`, f32, k ascending in one chain; `m` None is one row."""

    tile: Tile
    m: str | None
    n: str
    k: str
    a: Operand
    b: Operand
    accumulate: bool


@dataclass(frozen=True, slots=True)
class Reduce:
    """`tile[axes] (op)= op over axis of expr`, in 16 fixed lanes and one fixed tree."""

    tile: Tile
    kind: Kind  # SUM or MAX
    axis: str
    expr: Term
    accumulate: bool


@dataclass(frozen=True, slots=True)
class Scale:
    """`tile[axes] *= expr`."""

    tile: Tile
    expr: Term


@dataclass(frozen=True, slots=True)
class Store:
    """`buffer[indices] = expr` over `axes`, dropped where an index is outside its limit."""

    buffer: str
    indices: tuple[Term, ...]
    limits: tuple[tuple[Term, Size], ...]
    axes: tuple[str, ...]
    expr: Term
    dtype: DType


Statement: TypeAlias = Fill | Copy | Compute | Dot | Reduce | Scale | Store


@dataclass(frozen=True, slots=True)
class Loop:
    """`for axis in tiles of [lower, upper)`. Bounds are index terms of outer axes; None is the whole extent.

    `is_exact` bounds cut the last tile short, so that no point outside them is visited.
    """

    axis: str
    block: int
    body: tuple[Statement | Loop, ...]
    lower: Term | None = None
    upper: Term | None = None
    is_exact: bool = False


class Partition:
    """How the flattened parallel loops go to threads."""

    CHUNK = "chunk"
    CYCLIC = "cyclic"


@dataclass(frozen=True, slots=True)
class Param:
    """A buffer a kernel takes. A packed `layout` means that it is read only through `Packed` operands."""

    buffer: str
    shape: tuple[Size, ...]
    dtype: DType
    layout: WeightLayout = WeightLayout.ROW_MAJOR
    is_written: bool = False

    @property
    def is_packed(self) -> bool:
        return self.layout is not WeightLayout.ROW_MAJOR


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch. The first `parallel` loops of the nest are flattened and shared among threads."""

    params: tuple[Param, ...]
    blocks: Mapping[str, int]
    extents: Mapping[str, Size]
    body: tuple[Statement | Loop, ...]
    parallel: int
    partition: str
    notes: tuple[str, ...] = ()

    def block(self, axis: str) -> int:
        return self.blocks[axis]

    def tiles(self) -> tuple[Tile, ...]:
        """Every tile buffer, in order of first definition."""
        return tuple(dict.fromkeys(s.tile for s in statements(self.body) if not isinstance(s, Store)))

    def scratch_bytes(self) -> int:
        """Bytes of tile buffers, each rounded up to 64."""
        total = 0
        for t in self.tiles():
            total += -(-self.tile_elements(t) * 4 // 64) * 64
        return total

    def tile_elements(self, tile: Tile) -> int:
        count = 1
        for axis in tile.axes:
            count *= self.blocks[axis]
        return count


def statements(body: tuple[Statement | Loop, ...]) -> Iterator[Statement]:
    """Every statement of a body, in program order."""
    for item in body:
        if isinstance(item, Loop):
            yield from statements(item.body)
        else:
            yield item


def loops(body: tuple[Statement | Loop, ...]) -> Iterator[Loop]:
    for item in body:
        if isinstance(item, Loop):
            yield item
            yield from loops(item.body)
