"""Nodes, interning, and every refusal of the verifier."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given

from compiler.errors import DTypeError, GraphError, ShapeError, VerifyError
from compiler.ir import DType, Graph, GraphBuilder, Node, Op, symbol, topological, verify
from tests.support.random_graphs import graphs

T = symbol("T", 1, 8)


@pytest.fixture
def b() -> GraphBuilder:
    return GraphBuilder()


def test_equal_nodes_are_one_object(b):
    x = b.input("x", (T, 4), DType.F32)
    assert b.node(Op.ADD, (x, x)) is b.node(Op.ADD, (x, x))
    assert b.input("x", (T, 4), DType.F32) is x


@pytest.mark.pitfall("C3")
def test_constants_are_kept_apart_by_bits(b):
    assert b.const(0.0, DType.F32) is not b.const(-0.0, DType.F32)
    assert b.const(0.0, DType.F32) is not b.const(0.0, DType.F16)
    assert math.copysign(1, b.const(-0.0, DType.F32).attr) == -1


def test_all_nans_are_one_constant(b):
    other_nan = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
    assert b.const(math.nan, DType.F32) is b.const(other_nan, DType.F32)


@pytest.mark.parametrize(
    ("dtype", "value", "held"),
    [
        (DType.F32, 0.1, 0.10000000149011612),
        (DType.F16, 70000.0, math.inf),
        (DType.BF16, 1.00390625, 1.0),
        (DType.F32, 3, 3.0),
    ],
)
def test_a_constant_is_rounded_to_its_dtype(b, dtype, value, held):
    assert b.const(value, dtype).attr == held


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (DType.I32, 2**31),
        (DType.I32, 1.5),
        (DType.I32, True),
        (DType.BOOL, 1),
        (DType.F32, True),
        (DType.F32, "1"),
    ],
)
def test_a_value_that_is_not_the_dtypes_is_refused(b, dtype, value):
    with pytest.raises(DTypeError):
        b.const(value, dtype)


@pytest.mark.pitfall("C23")
def test_one_name_is_one_leaf(b):
    b.input("x", (4,), DType.F32)
    with pytest.raises(GraphError, match="already"):
        b.weight("x", (4,), DType.F32)


def test_topological_order_needs_no_recursion(b):
    node = b.input("x", (1,), DType.F32)
    for _ in range(50_000):
        node = Node(Op.SQRT, (node,), (1,), DType.F32)
    order = list(topological([node]))
    assert len(order) == 50_001
    assert order[0].op is Op.INPUT


@given(graphs())
def test_built_graphs_verify_and_list_operands_first(graph):
    verify(graph)
    place = {node: k for k, node in enumerate(graph.nodes)}
    assert all(place[operand] < place[node] for node in graph.nodes for operand in node.inputs)


def _x(b: GraphBuilder, *shape: object, dtype: DType = DType.F32, name: str = "x") -> Node:
    return b.input(name, shape, dtype)


@pytest.mark.parametrize(
    "make",
    [
        lambda b: b.node(Op.ADD, (_x(b, 4), _x(b, 1, name="y"))),
        lambda b: b.node(Op.ADD, (_x(b, 4),)),
        lambda b: b.node(Op.SUM, (_x(b, 4),), 1),
        lambda b: b.node(Op.SUM, (_x(b, 4),), None),
        lambda b: b.node(Op.SUM, (_x(b, 4),), True),
        lambda b: b.node(Op.PERMUTE, (_x(b, 4, 5),), (0, 0)),
        lambda b: b.node(Op.EXPAND, (_x(b, 4),), 0, shape=(5,)),
        lambda b: b.node(Op.EXPAND, (_x(b, 4),), 3, shape=(4, 5)),
        lambda b: b.node(Op.RESHAPE, (_x(b, T, 4),), shape=(T * 2, 3)),
        lambda b: b.node(Op.RESHAPE, (_x(b, 4),)),
        lambda b: b.node(Op.SLICE, (_x(b, 4),), (0, 2, 1), shape=(3,)),
        lambda b: b.node(Op.SLICE, (_x(b, 4),), (0, 3, -1), shape=(3,)),
        lambda b: b.node(Op.SLICE, (_x(b, T),), (0, 0, 1), shape=(2,)),
        lambda b: b.node(Op.SLICE, (_x(b, 4, 5),), (0, 0, 1), shape=(2, 4)),
        lambda b: b.node(Op.GATHER, (_x(b), _x(b, 2, dtype=DType.I32, name="i"))),
        lambda b: b.node(Op.IOTA, (), shape=(2, 2)),
        lambda b: b.node(Op.INPUT, (), "x", dtype=DType.F32),
        lambda b: b.node(Op.CONST, (), 1.0, shape=(2,), dtype=DType.F32),
        lambda b: b.node(Op.EXP2, (_x(b, 4),), shape=(5,)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(b, make):
    with pytest.raises(ShapeError):
        make(b)


@pytest.mark.parametrize(
    "make",
    [
        lambda b: b.node(Op.EXP2, (_x(b, 4, dtype=DType.I32),)),
        lambda b: b.node(Op.ADD, (_x(b, 4, dtype=DType.BOOL), _x(b, 4, dtype=DType.BOOL))),
        lambda b: b.node(Op.ADD, (_x(b, 4), _x(b, 4, dtype=DType.F16, name="y"))),
        lambda b: b.node(Op.FLOOR_DIV, (_x(b, 4), _x(b, 4))),
        lambda b: b.node(Op.SELECT, (_x(b, 4), _x(b, 4), _x(b, 4))),
        lambda b: b.node(Op.GATHER, (_x(b, 4), _x(b, 4))),
        lambda b: b.node(Op.CAST, (_x(b, 4),)),
        lambda b: b.node(Op.EXP2, (_x(b, 4),), dtype=DType.F16),
        lambda b: b.node(
            Op.SCATTER, (_x(b, 4), _x(b, 4, dtype=DType.I32, name="i"), _x(b, 4, dtype=DType.F16, name="s"))
        ),
    ],
)
def test_dtypes_that_do_not_fit_are_refused(b, make):
    with pytest.raises(DTypeError):
        make(b)


def test_a_scatters_source_must_fit(b):
    index = _x(b, 3, dtype=DType.I32, name="i")
    with pytest.raises(ShapeError, match="needs a source"):
        b.node(Op.SCATTER, (_x(b, 4, 5), index, _x(b, 3, 4, name="s")))


def test_a_symbolic_slice_is_taken_where_it_provably_fits(b):
    x = _x(b, T * 16)
    assert b.node(Op.SLICE, (x,), (0, T * 8, 1), shape=(T * 8,)).shape == (T * 8,)
    assert b.node(Op.SLICE, (x,), (0, 1, 2), shape=(T * 8,)).shape == (T * 8,)


def _forged(op: Op, inputs: tuple[Node, ...], shape: tuple[object, ...], attr: object = None) -> Graph:
    return Graph({"y": Node(op, inputs, shape, DType.F32, attr)})


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (_forged(Op.EXP2, (Node(Op.INPUT, (), (4,), DType.F32, "x"),), (5,)), "exp2 gives"),
        (_forged(Op.INPUT, (), (4,), ""), "needs a name"),
        (_forged(Op.CONST, (), (), 0.1), "not what its op gives"),
        (
            _forged(Op.ADD, tuple(Node(Op.INPUT, (), (4,), DType.F32, "x") for _ in range(2)), (4,)),
            "two leaves are called 'x'",
        ),
        (
            _forged(
                Op.ADD,
                (
                    Node(Op.INPUT, (), (T,), DType.F32, "x"),
                    Node(Op.INPUT, (), (symbol("T", 1, 9),), DType.F32, "y"),
                ),
                (T,),
            ),
            "two ranges",
        ),
    ],
)
def test_a_forged_graph_is_refused(graph, message):
    with pytest.raises(VerifyError, match=message):
        verify(graph)


def _graph_with_aliases(b: GraphBuilder, aliases: dict[str, str]) -> Graph:
    x, y = _x(b, 4), _x(b, 4, dtype=DType.F16, name="y")
    outputs = {"out": b.node(Op.EXP2, (x,)), "same": b.node(Op.SQRT, (x,)), "half": b.node(Op.EXP2, (y,))}
    return Graph(outputs, aliases)


def test_aliases_over_matching_inputs_verify(b):
    graph = _graph_with_aliases(b, {"out": "x", "half": "y"})
    verify(graph)
    assert graph.aliases == {"out": "x", "half": "y"}


@pytest.mark.pitfall("C25")
@pytest.mark.parametrize(
    "aliases", [{"out": "y"}, {"out": "z"}, {"none": "x"}, {"half": "x"}, {"out": "x", "same": "x"}]
)
def test_an_alias_that_does_not_fit_is_refused(b, aliases):
    with pytest.raises(VerifyError, match=r"alias|two outputs"):
        verify(_graph_with_aliases(b, aliases))


def test_a_nodes_text_is_one_short_line(b):
    assert repr(b.node(Op.SUM, (_x(b, T, 4),), 1)) == "sum(1): f32[T]"
