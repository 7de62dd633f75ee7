"""Compositions against PyTorch's own functions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from compiler.errors import DTypeError, ShapeError
from compiler.frontend import Trace
from compiler.frontend import functional as f
from compiler.ir import DType, Op, symbol
from tests.support.tensor_oracle import ours

NAN, INF = float("nan"), float("inf")
SPECIAL = torch.tensor([-INF, -200.0, -3.0, -0.5, -0.0, 0.0, 0.5, 3.0, 200.0, INF])


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("ours_of", "theirs_of"),
    [
        (f.exp, torch.exp),
        (f.sigmoid, torch.sigmoid),
        (f.tanh, torch.tanh),
        (f.erf, torch.erf),
        (f.relu, torch.relu),
        (f.absolute, torch.abs),
        (lambda x: f.clamp(x, -1, 2), lambda x: torch.clamp(x, -1, 2)),
        (lambda x: f.clamp(x, high=0), lambda x: torch.clamp(x, max=0)),
    ],
)
def test_elementwise_compositions_agree_also_far_out(ours_of, theirs_of):
    x = torch.cat([SPECIAL, random(100) * 4])
    torch.testing.assert_close(ours(ours_of, x), theirs_of(x), rtol=3e-5, atol=3e-7)


@pytest.mark.parametrize(
    ("ours_of", "theirs_of"),
    [
        (f.log, torch.log),
        (f.rsqrt, torch.rsqrt),
        (lambda x: f.silu(x), F.silu),
        (lambda x: f.cos(x), torch.cos),
    ],
)
def test_elementwise_compositions_agree_on_positive_numbers(ours_of, theirs_of):
    x = random(200).abs() * 3 + 1e-3
    torch.testing.assert_close(ours(ours_of, x), theirs_of(x), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("ours_of", "theirs_of"), [(f.gelu, F.gelu), (f.gelu_tanh, lambda x: F.gelu(x, approximate="tanh"))]
)
def test_gelu_agrees_also_where_it_vanishes(ours_of, theirs_of):
    x = torch.cat([SPECIAL[1:-1], random(200) * 4])
    torch.testing.assert_close(ours(ours_of, x), theirs_of(x), rtol=3e-6, atol=1e-6)


def test_a_soft_cap_is_a_scaled_tanh():
    x = torch.cat([SPECIAL, random(200) * 40])
    torch.testing.assert_close(
        ours(lambda x: f.soft_cap(x, 30.0), x), torch.tanh(x / 30) * 30, rtol=3e-6, atol=1e-5
    )


def test_exp_keeps_five_digits_from_underflow_to_overflow():
    x = torch.linspace(-87, 88, 4001)
    torch.testing.assert_close(ours(f.exp, x).double(), x.double().exp(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("ours_of", "theirs_of"),
    [
        (f.exp, torch.exp),
        (f.log, torch.log),
        (f.rsqrt, torch.rsqrt),
        (f.silu, F.silu),
        (f.sigmoid, torch.sigmoid),
        (f.gelu, F.gelu),
        (lambda x: f.softmax(x, 0), lambda x: x.softmax(0)),
        (lambda x: f.mean(x, 0), lambda x: x.mean(0)),
    ],
)
def test_half_floats_round_once_at_the_end(ours_of, theirs_of, dtype):
    x = (random(300).abs() * 3 + 1e-2).to(dtype)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(ours(ours_of, x), theirs_of(x), rtol=eps, atol=torch.finfo(dtype).tiny)


def test_silu_agrees_where_it_decays():
    x = torch.tensor([-100.0, -20.0, -1.0, 0.0, 1.0, 100.0])
    torch.testing.assert_close(ours(f.silu, x), F.silu(x), rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize(("ours_of", "theirs_of"), [(f.maximum, torch.maximum), (f.minimum, torch.minimum)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_a_nan_on_either_side_wins(ours_of, theirs_of, dtype):
    x = torch.tensor([1.0, 2.0, 3.0]) if dtype is torch.int32 else torch.tensor([1.0, NAN, 2.0, -INF])
    x, y = x.to(dtype)[:, None], x.to(dtype)[None, :]
    torch.testing.assert_close(ours(ours_of, x, y), theirs_of(x, y), equal_nan=True, rtol=0, atol=0)


def test_where_does_not_feel_what_is_not_taken():
    c = torch.tensor([True, False])
    out = ours(lambda c, x: f.where(c, x, 5), c, torch.tensor([1.0, NAN]))
    assert out.tolist() == [1.0, 5.0]


def test_where_promotes_as_pytorch():
    c, x, y = torch.tensor([True, False]), torch.ones(2, dtype=torch.int32), torch.full((2,), 0.5).half()
    torch.testing.assert_close(ours(f.where, c, x, y), torch.where(c, x, y))


def test_a_mask_is_exactly_zero_or_minus_infinity():
    assert ours(f.additive_mask, torch.tensor([True, False])).tolist() == [0.0, -INF]


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_reductions_agree_with_pytorch(axis, scale):
    x = random(3, 17, 5) * scale + 1000 / scale
    torch.testing.assert_close(ours(lambda t: f.softmax(t, axis), x), x.softmax(axis), rtol=3e-5, atol=1e-7)
    torch.testing.assert_close(ours(lambda t: f.log_sum_exp(t, axis), x), x.logsumexp(axis))
    torch.testing.assert_close(ours(lambda t: f.mean(t, axis), x), x.mean(axis))
    theirs = x.var(axis, correction=0, keepdim=True)
    torch.testing.assert_close(ours(lambda t: f.variance(t, axis, True), x), theirs, rtol=1e-5, atol=1e-5)


def test_a_softmax_over_masked_places_ignores_them():
    x = torch.tensor([[1.0, 2.0, -INF], [-INF, -INF, 4.0]])
    torch.testing.assert_close(ours(lambda t: f.softmax(t, 1), x), x.softmax(1))


def test_a_softmax_over_nothing_is_nan_as_in_pytorch():
    assert ours(lambda t: f.softmax(t, 0), torch.full((3,), -INF)).isnan().all()


def test_a_mean_over_a_symbolic_axis_counts_it():
    trace = Trace()
    x = trace.input("x", (symbol("T", 1, 9), 2), DType.F32)
    assert f.mean(x, 0).shape == (2,)
    assert Op.SUM in {node.op for node in trace.finish({"y": f.mean(x, 0)}).nodes}


@pytest.mark.parametrize(("left", "right"), [((4, 3), (3, 5)), ((2, 1, 4, 3), (6, 3, 5)), ((1, 3), (3, 1))])
def test_matmul_broadcasts_leading_axes(left, right):
    x, y = random(*left), random(*right, seed=1)
    torch.testing.assert_close(ours(f.matmul, x, y), x @ y)


@pytest.mark.pitfall("C10")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_matmul_over_a_long_axis_accumulates_in_f32(dtype):
    x, y = random(2, 8192).to(dtype), random(8192, 3, seed=1).to(dtype)
    exact = (x.double() @ y.double()).to(dtype)
    torch.testing.assert_close(ours(f.matmul, x, y), exact, rtol=1e-2, atol=1e-2)


def test_linear_multiplies_widened_weights():
    x, w, b = random(4, 8), random(6, 8, seed=1).bfloat16(), random(6, seed=2).bfloat16()
    torch.testing.assert_close(ours(f.linear, x, w, b), F.linear(x, w.float(), b.float()))


def test_norms_agree_with_pytorch():
    x, w, b = random(4, 48) * 3 + 50, random(48, seed=1), random(48, seed=2)
    torch.testing.assert_close(ours(lambda t, g: f.rms_norm(t, g, 1e-5), x, w), F.rms_norm(x, (48,), w, 1e-5))
    theirs = F.layer_norm(x, (48,), w, b, 1e-5)
    torch.testing.assert_close(
        ours(lambda t, g, c: f.layer_norm(t, g, c, 1e-5), x, w, b), theirs, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat_keeps_every_bit(axis):
    parts = [
        torch.tensor([[-0.0, NAN], [INF, 1.0]]),
        torch.tensor([[2.0, -0.0], [3.0, 4.0]]),
        torch.ones(2, 2),
    ]
    out, theirs = ours(lambda *t: f.concat(t, axis), *parts), torch.cat(parts, axis)
    assert torch.equal(out.view(torch.int32), theirs.view(torch.int32))


@pytest.mark.parametrize("axis", [0, 1])
def test_pad_surrounds_with_the_value(axis):
    x = torch.tensor([[NAN, -0.0], [1.0, 2.0]])
    before_after = [0, 0, 0, 0]
    before_after[2 * (1 - axis) : 2 * (1 - axis) + 2] = [2, 1]
    theirs = F.pad(x, before_after, value=7.0)
    assert torch.equal(
        ours(lambda t: f.pad(t, axis, 2, 1, 7.0), x).view(torch.int32), theirs.view(torch.int32)
    )


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_take_reads_along_an_axis(axis):
    x, index = random(3, 3, 3), torch.tensor([2, 0, 1, 1], dtype=torch.int32)
    assert torch.equal(ours(lambda t, i: f.take(t, i, axis), x, index), x.index_select(axis, index))


def test_concat_and_pad_of_symbolic_axes_have_symbolic_shapes():
    t = symbol("T", 1, 9)
    trace = Trace()
    x, y = trace.input("x", (t, 2), DType.F32), trace.input("y", (3, 2), DType.F32)
    assert f.concat([x, y], 0).shape == (t + 3, 2)
    assert f.pad(x, 0, t, 1).shape == (t * 2 + 1, 2)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda x: f.mean(x.cast(DType.I32), 0), DTypeError),
        (lambda x: f.additive_mask(x), DTypeError),
        (lambda x: f.matmul(x[0], x), ShapeError),
        (lambda x: f.concat([], 0), ShapeError),
        (lambda x: f.concat([x, x[:, :1]], 0), ShapeError),
        (lambda x: f.take(x, x.cast(DType.I32)), ShapeError),
    ],
)
def test_what_makes_no_sense_is_refused(make, error):
    with pytest.raises(error):
        make(Trace().input("x", (2, 3), DType.F32))
