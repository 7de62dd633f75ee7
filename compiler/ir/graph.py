"""Nodes, graphs, and the builder that interns nodes: what every frontend writes and the lowering reads."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from compiler.errors import DTypeError, GraphError, ShapeError, VerifyError
from compiler.ir.dim import Shape, Symbol, symbols
from compiler.ir.dtype import DType, bf16_to_f32, is_float, round_to_bf16
from compiler.ir.ops import SPECS, Op
from compiler.ir.rules import Attr, show


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Node:
    """One immutable tensor value. Equality is identity; a `GraphBuilder` makes equal nodes one object.

    `attr` by op: INPUT/WEIGHT the name; CONST the scalar; PERMUTE axes (out axis d reads in axis axes[d]);
    EXPAND the position of the new axis; SLICE (axis, start, step); SUM/MAX the axis; None for all others.
    `source` says which line of a model asked for it ("compiler.nn.mlp:21"), and is no part of its meaning.
    """

    op: Op
    inputs: tuple[Node, ...]
    shape: Shape
    dtype: DType
    attr: Attr = None
    source: str = ""

    def __repr__(self) -> str:
        attr = "" if self.attr is None else f"({self.attr})"
        return f"{self.op}{attr}: {self.dtype}{show(self.shape)}"


@dataclass(frozen=True, eq=False, slots=True)
class Graph:
    """Named outputs and all they need.

    `aliases` maps an output's name to the input over which it may be written in place (a KV cache). `nodes`
    is in topological order, operands first, and the same for the same graph in every process.
    """

    outputs: Mapping[str, Node]
    aliases: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[Node, ...] = field(init=False)
    inputs: Mapping[str, Node] = field(init=False)
    weights: Mapping[str, Node] = field(init=False)

    def __post_init__(self) -> None:
        nodes = tuple(topological(self.outputs.values()))
        frozen = object.__setattr__
        frozen(self, "outputs", MappingProxyType(dict(self.outputs)))
        frozen(self, "aliases", MappingProxyType(dict(self.aliases)))
        frozen(self, "nodes", nodes)
        frozen(self, "inputs", _named(nodes, Op.INPUT))
        frozen(self, "weights", _named(nodes, Op.WEIGHT))

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """Every symbol of every shape and slice, sorted by name."""
        return tuple(sorted({s for node in self.nodes for s in _symbols_of(node)}))


def topological(roots: Iterable[Node]) -> Iterator[Node]:
    """Each node reachable from `roots` once, operands before users; without recursion."""
    done: set[Node] = set()
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        node, is_expanded = stack.pop()
        if node in done:
            continue
        if is_expanded:
            done.add(node)
            yield node
        else:
            stack.append((node, True))
            stack.extend((operand, False) for operand in reversed(node.inputs))


class GraphBuilder:
    """Makes nodes, each checked by its op's rules; structurally equal nodes are one object."""

    def __init__(self) -> None:
        self._interned: dict[tuple[object, ...], Node] = {}
        self._names: dict[str, Node] = {}

    def node(
        self,
        op: Op,
        inputs: tuple[Node, ...] = (),
        attr: Attr = None,
        *,
        shape: Shape | None = None,
        dtype: DType | None = None,
        source: str = "",
    ) -> Node:
        """The node of `op` over `inputs`; `shape` and `dtype` where the op's rule cannot tell them. Of equal
        nodes the first one's `source` stays.

        Raises:
            ShapeError, DTypeError: the operands do not fit the op, or a name is taken by another leaf.
        """
        if op is Op.CONST:
            attr = canonical_constant(attr, dtype or DType.F32)
        made = Node(op, inputs, *infer(op, inputs, attr, shape, dtype), attr, source)
        key = (op, *map(id, inputs), made.shape, made.dtype, attr_key(attr))
        known = self._interned.setdefault(key, made)
        if op in (Op.INPUT, Op.WEIGHT) and self._names.setdefault(str(attr), known) is not known:
            raise GraphError(f"{op} {attr!r} is already {self._names[str(attr)]!r}")
        return known

    def input(self, name: str, shape: Shape, dtype: DType) -> Node:
        return self.node(Op.INPUT, (), name, shape=shape, dtype=dtype)

    def weight(self, name: str, shape: Shape, dtype: DType) -> Node:
        return self.node(Op.WEIGHT, (), name, shape=shape, dtype=dtype)

    def const(self, value: float | int | bool, dtype: DType) -> Node:
        """A scalar constant; a float is rounded to `dtype` here, so that its text is its value."""
        return self.node(Op.CONST, (), value, shape=(), dtype=dtype)


def infer(
    op: Op, inputs: tuple[Node, ...], attr: Attr, shape: Shape | None, dtype: DType | None
) -> tuple[Shape, DType]:
    """Shape and dtype of a node by its op's rules; what is declared must agree.

    Raises:
        ShapeError, DTypeError: the operands do not fit the op.
    """
    spec = SPECS[op]
    if len(inputs) < spec.arity or (len(inputs) > spec.arity and not spec.is_variadic):
        raise ShapeError(
            f"{op} takes {spec.arity}{'+' if spec.is_variadic else ''} operands, got {len(inputs)}"
        )
    found_shape = spec.shape.apply(tuple(n.shape for n in inputs), attr, shape)
    found_dtype = spec.dtype.apply(tuple(n.dtype for n in inputs), dtype)
    if shape is not None and shape != found_shape:
        raise ShapeError(f"{op} gives {show(found_shape)}, not {show(shape)}")
    if dtype is not None and dtype != found_dtype:
        raise DTypeError(f"{op} gives {found_dtype}, not {dtype}")
    return found_shape, found_dtype


def canonical_constant(value: Attr, dtype: DType) -> float | int | bool:
    """`value` as its dtype holds it: floats rounded (one NaN, signed zeros kept), integers in range.

    Raises:
        DTypeError: the value is not one of the dtype's.
    """
    if dtype is DType.BOOL and isinstance(value, bool):
        return value
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if dtype is DType.I32 and is_int and -(2**31) <= int(value) < 2**31:  # type: ignore[arg-type]
        return value  # type: ignore[return-value]
    if is_float(dtype) and (is_int or isinstance(value, float)):
        return _rounded(float(value), dtype)  # type: ignore[arg-type]
    raise DTypeError(f"{value!r} is not a constant of {dtype}")


def attr_key(attr: Attr) -> object:
    """A hashable stand-in that is equal only for equal attributes: types apart, floats by their bits."""
    return struct.pack("<d", attr) if isinstance(attr, float) else (type(attr), attr)


def verify(graph: Graph) -> None:
    """Check every rule of a graph.

    Raises:
        VerifyError: the first broken rule, and the node that breaks it.
    """
    _verify_names(graph)
    _verify_symbols(graph)
    for node in graph.nodes:
        try:
            found = infer(node.op, node.inputs, node.attr, node.shape, node.dtype)
            if node.op is Op.CONST:
                is_canonical = attr_key(canonical_constant(node.attr, node.dtype)) == attr_key(node.attr)
            else:
                is_canonical = True
        except GraphError as error:
            raise VerifyError(str(error), where=repr(node)) from error
        if found != (node.shape, node.dtype) or not is_canonical:
            raise VerifyError("its shape, dtype or constant is not what its op gives", where=repr(node))
    for output, source in graph.aliases.items():
        _verify_alias(graph, output, source)


def _verify_names(graph: Graph) -> None:
    taken: dict[str, Node] = {}
    for node in graph.nodes:
        if node.op not in (Op.INPUT, Op.WEIGHT):
            continue
        if not isinstance(node.attr, str) or not node.attr:
            raise VerifyError("a leaf needs a name", where=repr(node))
        if taken.setdefault(node.attr, node) is not node:
            raise VerifyError(f"two leaves are called {node.attr!r}", where=repr(node))


def _verify_symbols(graph: Graph) -> None:
    limits: dict[str, tuple[int, int]] = {}
    for node in graph.nodes:
        for s in _symbols_of(node):
            if limits.setdefault(s.name, (s.low, s.high)) != (s.low, s.high):
                raise VerifyError(f"symbol {s.name} has two ranges", where=repr(node))


def _verify_alias(graph: Graph, output: str, source: str) -> None:
    if output not in graph.outputs or source not in graph.inputs:
        raise VerifyError(f"alias {output!r} over {source!r} needs an output and an input of those names")
    node, over = graph.outputs[output], graph.inputs[source]
    if (node.shape, node.dtype) != (over.shape, over.dtype):
        raise VerifyError(f"alias {output!r} over {source!r}: {node!r} does not fit {over!r}")
    if list(graph.aliases.values()).count(source) > 1:
        raise VerifyError(f"input {source!r} is written by two outputs")


def _named(nodes: tuple[Node, ...], op: Op) -> Mapping[str, Node]:
    return MappingProxyType({str(node.attr): node for node in nodes if node.op is op})


def _symbols_of(node: Node) -> Iterator[Symbol]:
    for size in node.shape:
        yield from symbols(size)
    if node.op is Op.SLICE and isinstance(node.attr, tuple):
        yield from symbols(node.attr[1])


def _rounded(value: float, dtype: DType) -> float:
    if math.isnan(value):
        return math.nan
    with np.errstate(over="ignore"):
        single = np.float32(value)
        if dtype is DType.F16:
            return float(np.float16(value))
        if dtype is DType.BF16:
            return float(bf16_to_f32(round_to_bf16(np.array(single)))[()])
    return float(single)
