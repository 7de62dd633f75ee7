"""Arithmetic on shapes for the Tensor API: broadcasting, axes, -1, slices. Pure; sizes may be symbolic."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.errors import ShapeError
from compiler.ir import Dim, Shape, Size, divides, floordiv_exact
from compiler.ir.dim import product


@dataclass(frozen=True, slots=True)
class SliceSpec:
    """`extent` elements from `start`, every `step`-th."""

    start: Size
    step: int
    extent: Size

    def is_whole(self, extent: Size) -> bool:
        return self.start == 0 and self.step == 1 and self.extent == extent


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape to which all broadcast, axes aligned at the right; only a literal 1 repeats.

    Raises:
        ShapeError: two sizes of one axis differ and neither is 1.
    """
    rank = max(map(len, shapes), default=0)
    result: list[Size] = []
    for d in range(-rank, 0):
        sizes = [shape[d] for shape in shapes if len(shape) >= -d]
        wide = [size for size in sizes if size != 1]
        if any(size != wide[0] for size in wide):
            raise ShapeError(f"shapes {' and '.join(str(list(s)) for s in shapes)} do not broadcast")
        result.append(wide[0] if wide else 1)
    return tuple(result)


def normal_axis(axis: int, rank: int) -> int:
    """`axis` counted from the front.

    Raises:
        ShapeError: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} is not one of {rank} axes")
    return axis % rank


def resolve_reshape(old: Shape, new: Shape) -> Shape:
    """`new` with its one -1 replaced by what remains of `old`.

    Raises:
        ShapeError: more than one -1, or nothing fits.
    """
    unknown = [d for d, size in enumerate(new) if size == -1]
    if not unknown:
        return new
    known = product(size for size in new if size != -1)
    if len(unknown) > 1 or not divides(known, product(old)):
        raise ShapeError(f"reshape of {list(old)} cannot give {list(new)}")
    rest = floordiv_exact(product(old), known)
    return tuple(rest if size == -1 else size for size in new)


def resolve_slice(key: slice | Size, extent: Size) -> SliceSpec:
    """What a Python slice, or an index (then one element), takes of an axis of `extent`.

    Integers behave as in Python: negative ones count from the end and slices are cut off at it. A symbolic
    bound is taken at its word; the graph's rules refuse what may leave the axis.

    Raises:
        ShapeError: an index outside the axis, or a step below 1 or that does not divide a symbolic length.
    """
    if not isinstance(key, slice):
        return _resolve_index(key, extent)
    step = 1 if key.step is None else key.step
    if not isinstance(step, int) or step < 1:
        raise ShapeError(f"a slice's step is a positive integer, not {step}")
    if isinstance(extent, int) and not isinstance(key.start, Dim) and not isinstance(key.stop, Dim):
        start, stop, _ = key.indices(extent)
        return SliceSpec(start, step, max(0, -(-(stop - start) // step)))
    first = _from_end(0 if key.start is None else key.start, extent)
    length = _from_end(extent if key.stop is None else key.stop, extent) - first
    if step > 1 and not divides(step, length):
        raise ShapeError(f"step {step} does not divide the symbolic length {length}")
    return SliceSpec(first, step, floordiv_exact(length, step))


def _resolve_index(index: Size, extent: Size) -> SliceSpec:
    if isinstance(index, int) and isinstance(extent, int) and not -extent <= index < extent:
        raise ShapeError(f"index {index} is outside an axis of {extent}")
    return SliceSpec(_from_end(index, extent), 1, 1)


def _from_end(position: Size, extent: Size) -> Size:
    return extent + position if isinstance(position, int) and position < 0 else position
