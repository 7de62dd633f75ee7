"""The text form reads back to an equal graph."""

from __future__ import annotations

import pytest
from hypothesis import given

from compiler.errors import GraphSyntaxError
from compiler.ir import GraphBuilder, Op, parse_graph, print_graph, verify
from tests.support.random_graphs import graphs

EXAMPLE = """\
dim T in 1..8
%0 = input["x"]() : f32[T, 4]
%1 = const[-0.0]() : f32[]
%2 = expand[0](%1) : f32[T]
%3 = expand[1](%2) : f32[T, 4]
%4 = add(%0, %3) : f32[T, 4]
%5 = slice[1, 0, 2](%4) : f32[T, 2]
%6 = permute[1, 0](%5) : f32[2, T]
output "y" = %6
output "x2" = %4
alias "x2" over "x"
"""


def test_the_example_prints_as_it_was_written():
    assert print_graph(parse_graph(EXAMPLE)) == EXAMPLE


@given(graphs())
def test_text_reads_back_to_an_equal_graph(graph):
    text = print_graph(graph)
    again = parse_graph(text)
    verify(again)
    assert print_graph(again) == text
    assert dict(again.aliases) == dict(graph.aliases)
    assert list(again.outputs) == list(graph.outputs)
    assert [(n.op, n.shape, n.dtype, repr(n.attr)) for n in again.nodes] == [
        (n.op, n.shape, n.dtype, repr(n.attr)) for n in graph.nodes
    ]


def test_parsing_shares_the_builders_nodes():
    builder = GraphBuilder()
    first, second = parse_graph(EXAMPLE, builder), parse_graph(EXAMPLE, builder)
    assert first.outputs["y"] is second.outputs["y"]


def test_comments_and_blank_lines_are_skipped():
    assert print_graph(parse_graph("# a graph\n\n" + EXAMPLE)) == EXAMPLE


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%1 = frobnicate(%0) : f32[T, 4]", "frobnicate"),
        ("%1 = exp2(%9) : f32[T, 4]", "not defined"),
        ("%1 = exp2(%0) : f32[T, 5]", "exp2 gives"),
        ("%1 = exp2(%0) : f99[T, 4]", "f99"),
        ("%1 = exp2(%0) : f32[U, 4]", "symbol U"),
        ("%0 = exp2(%0) : f32[T, 4]", "twice"),
        ("%1 = sum[a](%0) : f32[T]", "invalid literal"),
        ("%1 = const[yes]() : bool[]", "not a bool"),
        ("dim T in 1..8", "twice"),
        ("dim U in 3..2", "low <= high"),
        ('output "y" = %7', "not defined"),
        ("what is this", "not a dim"),
    ],
)
def test_a_bad_line_is_named(line, message):
    with pytest.raises(GraphSyntaxError, match=message) as caught:
        parse_graph('dim T in 1..8\n%0 = input["x"]() : f32[T, 4]\n' + line)
    assert caught.value.line == 3


def test_every_op_has_a_text_name():
    assert len({op.value for op in Op}) == len(Op)
