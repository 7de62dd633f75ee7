"""The reference interpreter: evaluates a graph in NumPy, and so defines what every program must compute.

Plain: floats are computed in float32 and half floats rounded after each op. Precise: every float is computed
and kept in float64 without any rounding, as the oracle against which errors are measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from compiler.errors import EvaluationError
from compiler.ir import meaning
from compiler.ir.dim import Dim, Size, bind, symbols
from compiler.ir.dtype import Array, DType, bf16_to_f32, is_float, round_to_bf16, to_numpy_storage
from compiler.ir.graph import Graph, Node
from compiler.ir.ops import COMPOSITES, PRIMITIVES, Op

_COMPUTED = {**PRIMITIVES, **COMPOSITES}


def evaluate(
    graph: Graph,
    values: Mapping[str, Array],
    *,
    dims: Mapping[str, int] | None = None,
    precise: bool = False,
) -> dict[str, Array]:
    """The outputs by name, given every input and weight by name, in NumPy storage (bf16 as uint16 bits).

    Sizes are read from the inputs' shapes; `dims` adds symbols that no input shows. With `precise`, floats
    come out as float64, and float64 values are taken in place of any float.

    Raises:
        EvaluationError: a value is missing or does not fit its leaf, or an op has no result (a Gather outside
            its data, an integer division by zero).
    """
    bound = {**bind_dims(graph, values), **(dims or {})}
    uses = Counter(operand for node in graph.nodes for operand in node.inputs)
    uses.update(graph.outputs.values())
    live: dict[Node, Array] = {}
    for node in graph.nodes:
        operands = [live[operand] for operand in node.inputs]
        result = _evaluate_node(node, operands, values, bound, precise)
        live[node] = result if precise else _rounded(result, node.dtype)
        for operand in node.inputs:
            uses[operand] -= 1
            if not uses[operand]:
                live.pop(operand, None)
    return {name: _stored(live[node], node.dtype, precise) for name, node in graph.outputs.items()}


def bind_dims(graph: Graph, values: Mapping[str, Array]) -> dict[str, int]:
    """Each symbol's value, read from axes of the inputs that are that symbol alone.

    Raises:
        EvaluationError: two inputs disagree, or an input is missing or of the wrong rank.
    """
    bound: dict[str, int] = {}
    for name, node in graph.inputs.items():
        shape = _value(name, values).shape
        if len(shape) != len(node.shape):
            raise EvaluationError(f"input {name!r} needs {node!r}, got shape {list(shape)}")
        for size, extent in zip(node.shape, shape, strict=True):
            known = _lone_symbol(size)
            if known is not None and bound.setdefault(known, extent) != extent:
                raise EvaluationError(f"{known} is {bound[known]} and, in input {name!r}, {extent}")
    return bound


def _evaluate_node(
    node: Node, operands: list[Array], values: Mapping[str, Array], dims: Mapping[str, int], precise: bool
) -> Array:
    floats = np.float64 if precise else np.float32
    shape = tuple(bind(size, dims) for size in node.shape)
    match node.op:
        case Op.INPUT | Op.WEIGHT:
            return _loaded(node, shape, values, precise)
        case Op.CONST:
            return np.asarray(
                node.attr, dtype=floats if is_float(node.dtype) else to_numpy_storage(node.dtype)
            )
        case Op.IOTA:
            return meaning.iota(shape[0])
        case Op.CAST:
            return meaning.cast(operands[0], node.dtype, floats)
        case Op.SUM | Op.MAX:
            return _COMPUTED[node.op].numpy(*operands, node.attr)
        case Op.PERMUTE | Op.EXPAND | Op.RESHAPE | Op.SLICE:
            return _view(node, operands[0], shape, dims)
    return _COMPUTED[node.op].numpy(*operands)


def _view(node: Node, x: Array, shape: tuple[int, ...], dims: Mapping[str, int]) -> Array:
    match node.op, node.attr:
        case Op.PERMUTE, tuple(axes):
            return meaning.permute(x, axes)  # type: ignore[arg-type]
        case Op.EXPAND, int(position):
            return meaning.expand(x, position, shape[position])
        case Op.SLICE, (int(axis), int() | Dim() as start, int(step)):
            return meaning.slice_axis(x, axis, bind(start, dims), step, shape[axis])
    return meaning.reshape(x, shape)


def _loaded(node: Node, shape: tuple[int, ...], values: Mapping[str, Array], precise: bool) -> Array:
    value = _value(str(node.attr), values)
    is_wide = precise and is_float(node.dtype) and value.dtype == np.float64
    if value.shape != shape or not (is_wide or value.dtype == to_numpy_storage(node.dtype)):
        raise EvaluationError(
            f"{node!r} is here {list(shape)}, got {value.dtype}{list(value.shape)} "
            f"instead of {to_numpy_storage(node.dtype)}"
        )
    if not is_float(node.dtype) or is_wide:
        return value
    wide = bf16_to_f32(value) if node.dtype is DType.BF16 else value
    return wide.astype(np.float64 if precise else np.float32, copy=False)


def _rounded(value: Array, dtype: DType) -> Array:
    """The nearest values of a half float, held as float32; anything else as it is."""
    with np.errstate(all="ignore"):
        if dtype is DType.F16:
            return value.astype(np.float16).astype(np.float32)
        if dtype is DType.BF16:
            return bf16_to_f32(round_to_bf16(value))
    return value


def _stored(value: Array, dtype: DType, precise: bool) -> Array:
    if precise and is_float(dtype):
        return np.array(value)
    if dtype is DType.BF16:
        return round_to_bf16(value)
    return np.array(value, dtype=to_numpy_storage(dtype))


def _value(name: str, values: Mapping[str, Array]) -> Array:
    if name not in values:
        raise EvaluationError(f"no value is given for {name!r}")
    return values[name]


def _lone_symbol(size: Size) -> str | None:
    found = symbols(size)
    is_alone = len(found) == 1 and isinstance(size, Dim) and size.terms == (((found[0],), 1),)
    return found[0].name if is_alone else None
