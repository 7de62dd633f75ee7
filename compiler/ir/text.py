"""The text form of a graph, one node a line: for reading, for golden files, and to parse back.

dim T in 1..512
%0 = input["x"]() : f32[T, 4]
%1 = const[2.0]() : f32[]
%2 = expand[0](%1) : f32[T]
%3 = slice[1, 0, 2](%0) : f32[T, 2]
output "y" = %3
alias "y" over "x"
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeVar

from compiler.errors import GraphError, GraphSyntaxError
from compiler.ir.dim import Dim, Shape, parse_size, symbol
from compiler.ir.dtype import DType
from compiler.ir.graph import Graph, GraphBuilder, Node
from compiler.ir.ops import Op
from compiler.ir.rules import Attr, show

_NAME = r'"(?:[^"\\]|\\.)*"'
_DIM = re.compile(r"dim (\w+) in (\d+)\.\.(\d+)")
_NODE = re.compile(
    rf"%(\d+) = (\w+)(?:\[((?:{_NAME})|[^\]\"]*)\])?\(((?:%\d+(?:, )?)*)\) : (\w+)\[([^\]]*)\]"
)
_OUTPUT = re.compile(rf"output ({_NAME}) = %(\d+)")
_ALIAS = re.compile(rf"alias ({_NAME}) over ({_NAME})")

_T = TypeVar("_T")


def print_graph(graph: Graph) -> str:
    """The graph as text that `parse_graph` reads back to an equal graph; equal graphs print alike."""
    number = {node: k for k, node in enumerate(graph.nodes)}
    lines = [f"dim {s.name} in {s.low}..{s.high}" for s in graph.symbols]
    lines += [_print_node(node, number) for node in graph.nodes]
    lines += [f"output {json.dumps(name)} = %{number[node]}" for name, node in graph.outputs.items()]
    lines += [f"alias {json.dumps(out)} over {json.dumps(source)}" for out, source in graph.aliases.items()]
    return "\n".join(lines) + "\n"


def parse_graph(text: str, builder: GraphBuilder | None = None) -> Graph:
    """Read the text form. The nodes are made by `builder`, so equal ones are shared.

    Raises:
        GraphSyntaxError: a line that is no part of a graph, or breaks an op's rule; names the line.
    """
    reader = _Reader(builder or GraphBuilder())
    for line_number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            reader.read(line.strip())
        except GraphSyntaxError:
            raise
        except (GraphError, ValueError) as error:
            raise GraphSyntaxError(str(error), line=line_number) from error
    return Graph(reader.outputs, reader.aliases)


class _Reader:
    """What has been read so far."""

    def __init__(self, builder: GraphBuilder) -> None:
        self.outputs: dict[str, Node] = {}
        self.aliases: dict[str, str] = {}
        self._builder = builder
        self._dims: dict[str, Dim] = {}
        self._nodes: dict[str, Node] = {}

    def read(self, line: str) -> None:
        if match := _NODE.fullmatch(line):
            self._read_node(*match.groups())
        elif match := _DIM.fullmatch(line):
            _once(self._dims, match[1], symbol(match[1], int(match[2]), int(match[3])))
        elif match := _OUTPUT.fullmatch(line):
            _once(self.outputs, str(json.loads(match[1])), self._node(match[2]))
        elif match := _ALIAS.fullmatch(line):
            _once(self.aliases, str(json.loads(match[1])), str(json.loads(match[2])))
        else:
            raise GraphError(f"not a dim, node, output or alias: {line!r}")

    def _read_node(
        self, number: str, op_name: str, attr_text: str | None, operands: str, dtype: str, shape_text: str
    ) -> None:
        op = Op(op_name)
        inputs = tuple(self._node(k) for k in re.findall(r"\d+", operands))
        attr = None if attr_text is None else self._attr(op, attr_text, DType(dtype))
        made = self._builder.node(op, inputs, attr, shape=self._shape(shape_text), dtype=DType(dtype))
        _once(self._nodes, number, made)

    def _node(self, number: str) -> Node:
        if number not in self._nodes:
            raise GraphError(f"%{number} is not defined above")
        return self._nodes[number]

    def _shape(self, text: str) -> Shape:
        return tuple(parse_size(part, self._dims) for part in text.split(",")) if text else ()

    def _attr(self, op: Op, text: str, dtype: DType) -> Attr:
        if op in (Op.INPUT, Op.WEIGHT):
            return str(json.loads(text))
        if op is Op.CONST:
            return _CONSTANTS.get(dtype, float)(text)
        if op is Op.PERMUTE:
            return tuple(int(part) for part in text.split(",")) if text else ()
        if op is Op.SLICE:
            axis, start, step = text.split(",")
            return int(axis), parse_size(start, self._dims), int(step)
        return int(text)


def _bool(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is not a bool")
    return text == "true"


_CONSTANTS: dict[DType, Callable[[str], float | int | bool]] = {DType.BOOL: _bool, DType.I32: int}


def _print_node(node: Node, number: dict[Node, int]) -> str:
    attr = "" if node.attr is None else f"[{_print_attr(node.attr)}]"
    operands = ", ".join(f"%{number[operand]}" for operand in node.inputs)
    return f"%{number[node]} = {node.op}{attr}({operands}) : {node.dtype}{show(node.shape)}"


def _print_attr(attr: Attr) -> str:
    if isinstance(attr, bool):
        return "true" if attr else "false"
    if isinstance(attr, str):
        return json.dumps(attr)
    if isinstance(attr, tuple):
        return ", ".join(map(str, attr))
    return repr(attr)


def _once(table: dict[str, _T], key: str, value: _T) -> None:
    if key in table:
        raise GraphError(f"{key!r} is defined twice")
    table[key] = value
