"""Operators, views and reductions of the Tensor API against PyTorch."""

from __future__ import annotations

import pytest
import torch

from compiler.errors import DimError, DTypeError, GraphError, ShapeError
from compiler.frontend import Trace
from compiler.ir import DType, Op, symbol
from tests.support.tensor_oracle import ours

NAN, INF = float("nan"), float("inf")
FLOATS = torch.tensor([-7.0, -3.0, -0.5, -0.0, 0.0, 0.5, 3.0, 7.0, INF, -INF, NAN])
INTEGERS = torch.tensor([-7, -3, -1, 1, 3, 7, 100], dtype=torch.int32)
BOOLS = torch.tensor([True, False])


def _table(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[:, None], y[None, :]


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(torch.nan_to_num(a, 1e9), torch.nan_to_num(b, 1e9))


OPERATORS = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: x / y,
    lambda x, y: x < y,
    lambda x, y: x > y,
    lambda x, y: x <= y,
    lambda x, y: x >= y,
    lambda x, y: x.eq(y),
    lambda x, y: x.ne(y),
]


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(
    ("x", "y"),
    [
        _table(FLOATS, FLOATS),
        _table(INTEGERS, INTEGERS),
        _table(INTEGERS, FLOATS),
        _table(FLOATS.half(), FLOATS),
        _table(FLOATS.bfloat16(), FLOATS.half()),
        _table(INTEGERS, FLOATS.bfloat16()),
        (FLOATS.bfloat16(), torch.tensor(1.25)),
    ],
)
def test_operators_agree_with_pytorch_in_value_and_dtype(operator, x, y):
    assert _same(ours(operator, x, y), operator(x, y))


@pytest.mark.pitfall("C8")
@pytest.mark.parametrize(
    "operator",
    [
        lambda x: x + 2,
        lambda x: 2 - x,
        lambda x: x - 2.5,
        lambda x: 2.5 * x,
        lambda x: 1 / x,
        lambda x: x / 3,
        lambda x: -x,
        lambda x: x > 1,
        lambda x: x + True,
        lambda x: x**3,
        lambda x: x**0,
    ],
)
@pytest.mark.parametrize("x", [FLOATS, INTEGERS, FLOATS.half(), FLOATS.bfloat16()])
def test_numbers_mix_as_in_pytorch(operator, x):
    assert _same(ours(operator, x), operator(x))


@pytest.mark.pitfall("C1")
@pytest.mark.parametrize(
    ("x", "y"), [_table(INTEGERS, INTEGERS), _table(FLOATS, FLOATS[[0, 1, 2, 5, 6, 7, 10]])]
)
def test_remainder_has_the_divisors_sign_and_fmod_the_dividends(x, y):
    assert _same(ours(lambda a, b: a % b, x, y), torch.remainder(x, y))
    assert _same(ours(lambda a, b: a.fmod(b), x, y), torch.fmod(x, y))


@pytest.mark.pitfall("C1")
def test_the_remainders_that_are_often_wrong():
    x, y = torch.tensor([-7, 7], dtype=torch.int32), torch.tensor([3, -3], dtype=torch.int32)
    assert ours(lambda a, b: a % b, x, y).tolist() == [2, -2]
    assert ours(lambda a, b: a.fmod(b), x, y).tolist() == [-1, 1]


@pytest.mark.pitfall("C6")
def test_integer_division_floors():
    x, y = _table(INTEGERS, INTEGERS)
    assert _same(ours(lambda a, b: a // b, x, y), x // y)


@pytest.mark.pitfall("C3")
def test_zero_and_minus_zero_divide_apart_in_one_graph():
    out = ours(lambda x: x / 0.0 + x / -0.0 * 0.5, torch.tensor([1.0]))
    assert out.isnan().all()
    assert ours(lambda x: 1 / (x * -0.0), torch.tensor([1.0])).tolist() == [-INF]


@pytest.mark.parametrize(
    "operator",
    [
        lambda x, y: x & y,
        lambda x, y: x | y,
        lambda x, y: x + y,
        lambda x, y: x * y,
        lambda x, y: x < y,
        lambda x, y: x >= y,
        lambda x, y: x.eq(y),
        lambda x, y: ~x,
    ],
)
def test_bools_are_logic(operator):
    x, y = torch.broadcast_tensors(*_table(BOOLS, BOOLS))
    assert _same(ours(operator, x, y), operator(x, y))


def test_isnan_is_true_of_nan_only():
    assert _same(ours(lambda x: x.isnan(), FLOATS), FLOATS.isnan())
    assert not ours(lambda x: x.isnan(), INTEGERS).any()


@pytest.mark.parametrize("axis", [0, -1, (0, 2), None])
@pytest.mark.parametrize("keepdim", [False, True])
def test_reductions_agree_with_pytorch(axis, keepdim):
    x = torch.arange(24.0).reshape(2, 3, 4) % 7 - 3
    axes = tuple(range(3)) if axis is None else axis
    assert _same(ours(lambda t: t.sum(axis, keepdim), x), x.sum(axes, keepdim))
    assert _same(ours(lambda t: t.max(axis, keepdim), x), x.amax(axes, keepdim))
    assert _same(ours(lambda t: t.min(axis, keepdim), x), x.amin(axes, keepdim))


def test_a_sum_of_bools_counts_them():
    assert ours(lambda x: x.sum(), BOOLS).tolist() == 1


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.reshape(6, -1),
        lambda x: x.reshape(24).reshape(2, 3, 4),
        lambda x: x.permute(2, 0, 1),
        lambda x: x.permute(-1, 0, 1),
        lambda x: x.transpose(0, -1),
        lambda x: x.unsqueeze(1),
        lambda x: x.unsqueeze(-1),
        lambda x: x[1],
        lambda x: x[-1],
        lambda x: x[:, 1:],
        lambda x: x[..., ::2],
        lambda x: x[..., 1::2],
        lambda x: x[:, None, :, 1:3],
        lambda x: x[0, ..., -1],
        lambda x: x[:, -2:, :-1],
        lambda x: x[:, 5:],
        lambda x: x[:, 2:1],
    ],
)
def test_views_read_what_pytorchs_read(view):
    x = torch.arange(24.0).reshape(2, 3, 4)
    assert _same(ours(view, x), view(x))


def test_broadcasting_repeats_new_axes_and_ones():
    x = torch.arange(6.0).reshape(3, 1, 2)
    assert _same(ours(lambda t: t.broadcast_to((4, 3, 5, 2)), x), x.broadcast_to(4, 3, 5, 2))


def test_index_tensors_read_by_coordinates():
    x = torch.arange(24.0).reshape(2, 3, 4)
    i, j = torch.tensor([[1], [0]], dtype=torch.int32), torch.tensor([2, 0], dtype=torch.int32)
    assert _same(ours(lambda t, a: t[a,], x, i), x[i.long()])
    assert _same(ours(lambda t, a, b: t[a, b], x, i, j), x[i.long(), j.long()])


def test_scatter_writes_by_coordinates():
    x, source = torch.zeros(3, 2, 2), torch.ones(2, 2)
    i, j = torch.tensor([2, 0], dtype=torch.int32), torch.tensor([1, 0], dtype=torch.int32)
    expected = x.clone().index_put((i.long(), j.long()), source)
    assert _same(ours(lambda t, s, a, b: t.scatter((a, b), s), x, source, i, j), expected)


def test_symbolic_sizes_reshape_slice_and_broadcast():
    t = symbol("T", 2, 8)
    trace = Trace()
    x = trace.input("x", (t, 4), DType.F32)
    assert x.reshape(-1, 2).shape == (t * 2, 2)
    assert x.reshape(-1)[::2].shape == (t * 2,)
    assert x[1:].shape == (t - 1, 4)
    assert x[-1].shape == (4,)
    assert (x + trace.input("y", (4,), DType.F32)).shape == (t, 4)


def test_views_that_change_nothing_make_no_nodes():
    x = Trace().input("x", (2, 3), DType.F32)
    assert x.reshape(2, 3).node is x.node
    assert x.reshape(6).reshape(2, 3).node is x.node
    assert x.permute(0, 1).node is x.node
    assert x[:].node is x.node
    assert x.cast(DType.F32) is x


def test_a_matching_computation_is_made_once():
    x = Trace().input("x", (2, 3), DType.F32)
    assert (x * 2 + 1).node is (x * 2 + 1).node


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda x: x + x[:, :2], ShapeError),
        (lambda x: x.broadcast_to((2, 4)), ShapeError),
        (lambda x: x.reshape(4, -1), ShapeError),
        (lambda x: x.sum(2), ShapeError),
        (lambda x: x[2], ShapeError),
        (lambda x: x[::-1], ShapeError),
        (lambda x: x[0, 0, 0], ShapeError),
        (lambda x: x[..., 0, ...], ShapeError),
        (lambda x: x & x, DTypeError),
        (lambda x: x // 2, DTypeError),
        (lambda x: -(x < 1), DTypeError),
        (lambda x: (x < 1) - (x < 2), DTypeError),
        (lambda x: x[x,], DTypeError),
        (lambda x: x + Trace().input("y", (2, 3), DType.F32), ShapeError),
        (lambda x: x[: symbol("S", 0, 9)], (ShapeError, DimError)),
    ],
)
def test_what_makes_no_sense_is_refused(make, error):
    with pytest.raises(error):
        make(Trace().input("x", (2, 3), DType.F32))


@pytest.mark.pitfall("C24")
@pytest.mark.parametrize(
    ("branch", "error"),
    [
        (lambda x: 1 if x > 0 else 2, GraphError),
        (lambda x: (x > 0) and x, GraphError),
        (lambda x: 0 < x < 3, GraphError),
        (lambda x: not x.sum(), GraphError),
        (lambda x: x == 0, GraphError),
        (lambda x: x != x, GraphError),
        (lambda x: x[x > 0], DTypeError),
        (lambda x: 1 if x.shape[0] else 2, DimError),
        (lambda x: 1 if x.shape[0] > 4 else 2, TypeError),
    ],
)
def test_c24_a_branch_on_what_is_known_only_when_run_is_refused(branch, error):
    with pytest.raises(error):
        branch(Trace().input("x", (symbol("T", 1, 8), 3), DType.F32))


def test_a_finished_trace_has_its_leaves_by_name():
    trace = Trace()
    x, w = trace.input("x", (3,), DType.F32), trace.weight("w", (3,), DType.BF16)
    graph = trace.finish({"y": x * w}, {"y": "x"})
    assert list(graph.inputs) == ["x"]
    assert list(graph.weights) == ["w"]
    assert graph.outputs["y"].op is Op.MUL
