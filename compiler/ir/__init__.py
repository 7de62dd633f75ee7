"""The primitive graph (L0): ops, sizes, nodes, verifier, text form and the reference interpreter."""

from compiler.ir.dim import Dim, Shape, Size, Symbol, bind, bounds, divides, floordiv_exact, symbol, symbols
from compiler.ir.dtype import DType, bf16_to_f32, is_float, itemsize, round_to_bf16, to_numpy_storage
from compiler.ir.graph import Graph, GraphBuilder, Node, topological, verify
from compiler.ir.ops import COMPOSITES, ELEMENTWISE, LEAVES, PRIMITIVES, REDUCTIONS, VIEWS, Op
from compiler.ir.reference import bind_dims, evaluate
from compiler.ir.text import parse_graph, print_graph

__all__ = [
    "COMPOSITES",
    "ELEMENTWISE",
    "LEAVES",
    "PRIMITIVES",
    "REDUCTIONS",
    "VIEWS",
    "DType",
    "Dim",
    "Graph",
    "GraphBuilder",
    "Node",
    "Op",
    "Shape",
    "Size",
    "Symbol",
    "bf16_to_f32",
    "bind",
    "bind_dims",
    "bounds",
    "divides",
    "evaluate",
    "floordiv_exact",
    "is_float",
    "itemsize",
    "parse_graph",
    "print_graph",
    "round_to_bf16",
    "symbol",
    "symbols",
    "to_numpy_storage",
    "topological",
    "verify",
]
