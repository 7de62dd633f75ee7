"""The reference interpreter against PyTorch: every op, every dtype, special values included."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from compiler.errors import EvaluationError, IndexOutOfRange
from compiler.ir import DType, Graph, GraphBuilder, Op, bf16_to_f32, evaluate, round_to_bf16, symbol

TORCH = {
    DType.F32: torch.float32,
    DType.F16: torch.float16,
    DType.BF16: torch.bfloat16,
    DType.I32: torch.int32,
    DType.BOOL: torch.bool,
}
FLOATS = [DType.F32, DType.F16, DType.BF16]
NUMBERS = [*FLOATS, DType.I32]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 7.0, -7.0, 1e-40, 65504.0, 3e38, np.inf, -np.inf, np.nan]
INTEGERS = [0, 1, -1, 2, 3, -3, 7, -7, 16, 46341, 2**31 - 1, -(2**31), -(2**31) + 1]


def to_storage(t: torch.Tensor) -> np.ndarray:
    if t.dtype is torch.bfloat16:
        return t.view(torch.int16).numpy().view(np.uint16)
    return t.numpy()


def to_torch(array: np.ndarray, dtype: DType) -> torch.Tensor:
    if dtype is DType.BF16:
        return torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(array))


def samples(dtype: DType, seed: int = 0) -> torch.Tensor:
    """Special values, then random ones over many magnitudes."""
    rng = np.random.default_rng(seed)
    if dtype is DType.I32:
        return torch.tensor([*INTEGERS, *rng.integers(-(2**31), 2**31, 51)], dtype=torch.int32)
    if dtype is DType.BOOL:
        return torch.from_numpy(rng.integers(0, 2, 64).astype(bool))
    random = rng.normal(size=49) * 2.0 ** rng.integers(-12, 12, 49)
    return torch.tensor([*SPECIAL, *random], dtype=torch.float64).to(TORCH[dtype])


def pairs(dtype: DType) -> tuple[torch.Tensor, torch.Tensor]:
    """Every sample against every other."""
    x = samples(dtype)
    return x.repeat_interleave(len(x)), x.repeat(len(x))


def run(op: Op, *tensors: torch.Tensor, attr=None, shape=None, dtype=None, precise=False) -> np.ndarray:
    b = GraphBuilder()
    names = {v: k for k, v in TORCH.items()}
    leaves = [b.input(f"x{k}", tuple(t.shape), names[t.dtype]) for k, t in enumerate(tensors)]
    node = b.node(op, tuple(leaves), attr, shape=shape, dtype=dtype)
    values = {f"x{k}": to_storage(t) for k, t in enumerate(tensors)}
    return evaluate(Graph({"y": node}), values, precise=precise)["y"]


def same_bits(ours: np.ndarray, theirs: torch.Tensor) -> bool:
    """Equal in every bit, all NaNs alike."""
    expected = to_storage(theirs)
    wide = (lambda a: bf16_to_f32(a)) if theirs.dtype is torch.bfloat16 else (lambda a: a)
    a, b = wide(ours), wide(expected)
    if a.dtype.kind != "f":
        return a.dtype == b.dtype and bool(np.array_equal(a, b))
    is_nan = np.isnan(a)
    signs = np.signbit(a) == np.signbit(b)
    return a.dtype == b.dtype and bool(np.all((is_nan & np.isnan(b)) | ((a == b) & signs)))


def close(ours: np.ndarray, theirs: torch.Tensor, ulps: int) -> bool:
    """Equal specials; finite values within `ulps` units of the dtype (absolute below its normal range)."""
    dtype = theirs.dtype
    a = to_torch(ours, DType.BF16).double() if dtype is torch.bfloat16 else torch.from_numpy(ours).double()
    b = theirs.double()
    finite = torch.isfinite(b)
    info = torch.finfo(dtype)
    allowed = ulps * info.eps * b[finite].abs() + info.tiny
    matches = (a[~finite] == b[~finite]) | (a[~finite].isnan() & b[~finite].isnan())
    return bool(matches.all() and ((a[finite] - b[finite]).abs() <= allowed).all())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("op", "theirs", "ulps"),
    [
        (Op.EXP2, torch.exp2, 2),
        (Op.LOG2, torch.log2, 2),
        (Op.SIN, torch.sin, 2),
    ],
)
def test_transcendental_ops_are_pytorchs_within_two_units(op, theirs, ulps, dtype):
    x = samples(dtype)
    x = x[~(x.abs() > 1e6)] if op is Op.SIN else x
    assert close(run(op, x), theirs(x), ulps)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_the_sine_of_no_finite_number_is_nan(value):
    assert np.isnan(run(Op.SIN, torch.tensor([value])))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("op", "theirs"), [(Op.SQRT, torch.sqrt), (Op.RECIP, torch.reciprocal)])
def test_correctly_rounded_unary_ops_have_pytorchs_bits(op, theirs, dtype):
    x = samples(dtype)
    assert same_bits(run(op, x), theirs(x))


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize(
    ("op", "theirs"), [(Op.ADD, torch.add), (Op.MUL, torch.mul), (Op.LESS_THAN, torch.lt)]
)
def test_binary_ops_have_pytorchs_bits(op, theirs, dtype):
    x, y = pairs(dtype)
    assert same_bits(run(op, x, y), theirs(x, y))


@pytest.mark.pitfall("C6")
@pytest.mark.parametrize("dtype", FLOATS)
def test_division_has_pytorchs_bits(dtype):
    x, y = pairs(dtype)
    assert same_bits(run(Op.DIV, x, y), torch.div(x, y))


@pytest.mark.pitfall("C1")
@pytest.mark.parametrize("dtype", FLOATS)
def test_remainder_has_pytorchs_bits_where_the_quotient_is_finite(dtype):
    x, y = pairs(dtype)
    overflows = x.isfinite() & y.isfinite() & (y != 0) & ~(x.float() / y.float()).isfinite()
    x, y = x[~overflows], y[~overflows]
    assert same_bits(run(Op.MOD, x, y), torch.fmod(x, y))


def test_remainder_is_exact_where_the_quotient_overflows():
    x, y = torch.tensor([3e38, -7.0, 1.0]), torch.tensor([0.01, 1e-40, -1e-40])
    exact = [math.fmod(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert run(Op.MOD, x, y).tolist() == exact


def _nonzero_integer_pairs() -> tuple[torch.Tensor, torch.Tensor]:
    x, y = pairs(DType.I32)
    kept = (y != 0) & ~((x == -(2**31)) & (y == -1))
    return x[kept], y[kept]


@pytest.mark.pitfall("C1")
def test_integer_remainder_truncates_as_pytorchs_fmod():
    x, y = _nonzero_integer_pairs()
    assert same_bits(run(Op.MOD, x, y), torch.fmod(x, y))


@pytest.mark.pitfall("C6")
def test_integer_division_floors_as_pytorchs():
    x, y = _nonzero_integer_pairs()
    assert same_bits(run(Op.FLOOR_DIV, x, y), torch.div(x, y, rounding_mode="floor"))


def test_the_lowest_integer_over_minus_one_wraps():
    x, y = torch.tensor([-(2**31)], dtype=torch.int32), torch.tensor([-1], dtype=torch.int32)
    assert run(Op.FLOOR_DIV, x, y) == -(2**31)
    assert run(Op.MOD, x, y) == 0


@pytest.mark.parametrize("op", [Op.MOD, Op.FLOOR_DIV])
def test_dividing_an_integer_by_zero_is_an_error(op):
    with pytest.raises(EvaluationError, match="zero"):
        run(op, torch.tensor([1], dtype=torch.int32), torch.tensor([0], dtype=torch.int32))


@pytest.mark.parametrize("dtype", list(DType))
def test_select_passes_the_chosen_bits(dtype):
    condition = samples(DType.BOOL)
    x, y = samples(dtype), samples(dtype, seed=1).flip(0)
    assert same_bits(run(Op.SELECT, condition, x, y), torch.where(condition, x, y))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_sum_is_pytorchs_within_its_rounding(dtype, axis):
    x = torch.from_numpy(np.random.default_rng(3).uniform(0.1, 1, (3, 40, 5))).to(TORCH[dtype])
    assert close(run(Op.SUM, x, attr=axis), x.float().sum(axis).to(TORCH[dtype]), 4)


@pytest.mark.pitfall("C10")
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_a_long_half_sum_accumulates_in_f32(dtype):
    x = torch.full((8192,), 0.125, dtype=TORCH[dtype])
    assert float(to_torch(run(Op.SUM, x, attr=0)[None], dtype)) == 1024.0


@pytest.mark.parametrize("axis", [0, 1])
def test_an_integer_sum_wraps(axis):
    x = samples(DType.I32).reshape(8, 8)
    assert same_bits(run(Op.SUM, x, attr=axis), x.sum(axis, dtype=torch.int32))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_a_max_has_pytorchs_bits_and_a_nan_wins(dtype, axis):
    x = samples(dtype)[2:].repeat(2)[:120].reshape(10, 12)
    assert same_bits(run(Op.MAX, x, attr=axis), x.amax(axis))


def test_empty_reductions_give_the_identity():
    assert run(Op.SUM, torch.zeros(2, 0), attr=1).tolist() == [0.0, 0.0]
    assert run(Op.MAX, torch.zeros(2, 0), attr=1).tolist() == [-np.inf, -np.inf]
    assert run(Op.MAX, torch.zeros(2, 0, dtype=torch.int32), attr=1).tolist() == [-(2**31)] * 2


@pytest.mark.parametrize("target", list(DType))
@pytest.mark.parametrize("source", list(DType))
def test_casts_have_pytorchs_bits(source, target):
    x = samples(source)
    if target is DType.I32 and source in FLOATS:
        x = x[x.abs() < 2**31]
    assert same_bits(run(Op.CAST, x, dtype=target), x.to(TORCH[target]))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2.0**31, -(2.0**31) - 256, 3e38])
def test_a_float_outside_i32_casts_to_its_lowest(value):
    assert run(Op.CAST, torch.tensor([value], dtype=torch.float32), dtype=DType.I32) == -(2**31)


@pytest.mark.parametrize("dtype", list(DType))
def test_gather_by_coordinates_reads_what_pytorch_reads(dtype):
    data = samples(dtype).reshape(4, 2, 8)
    i, j = torch.tensor([[3, 0, 1], [2, 2, 3]]).int(), torch.tensor([[0, 1, 1], [1, 0, 0]]).int()
    assert same_bits(run(Op.GATHER, data, i), data[i.long()])
    assert same_bits(run(Op.GATHER, data, i, j), data[i.long(), j.long()])


@pytest.mark.parametrize("index", [-1, 4])
def test_gathering_outside_the_data_is_an_error(index):
    with pytest.raises(IndexOutOfRange, match="axis 0, which has 4"):
        run(Op.GATHER, torch.zeros(4, 2), torch.tensor([0, index], dtype=torch.int32))


@pytest.mark.parametrize("dtype", list(DType))
def test_scatter_by_coordinates_writes_what_pytorch_writes(dtype):
    dest, source = samples(dtype).reshape(4, 2, 8), samples(dtype, seed=2)[:24].reshape(3, 8)
    i, j = torch.tensor([3, 0, 1]).int(), torch.tensor([0, 1, 1]).int()
    assert same_bits(
        run(Op.SCATTER, dest, i, j, source), dest.clone().index_put((i.long(), j.long()), source)
    )


def test_scatter_drops_what_lies_outside_and_leaves_its_operand():
    dest = torch.zeros(4, 2)
    indices = torch.tensor([-1, 2, 4, 2**31 - 1], dtype=torch.int32)
    out = run(Op.SCATTER, dest, indices, torch.arange(8.0).reshape(4, 2))
    assert out.tolist() == [[0, 0], [0, 0], [2, 3], [0, 0]]
    assert dest.sum() == 0


def test_of_two_writes_to_one_place_the_last_wins_in_the_reference():
    out = run(Op.SCATTER, torch.zeros(2), torch.tensor([1, 1], dtype=torch.int32), torch.tensor([5.0, 6.0]))
    assert out.tolist() == [0, 6]


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize(
    ("op", "attr", "shape", "theirs"),
    [
        (Op.PERMUTE, (2, 0, 1), None, lambda x: x.permute(2, 0, 1)),
        (Op.EXPAND, 1, (4, 3, 2, 8), lambda x: x[:, None].expand(4, 3, 2, 8)),
        (Op.RESHAPE, None, (2, 32), lambda x: x.reshape(2, 32)),
        (Op.SLICE, (2, 1, 3), (4, 2, 2), lambda x: x[:, :, 1:7:3]),
    ],
)
def test_views_read_what_pytorch_reads(op, attr, shape, theirs, dtype):
    x = samples(dtype).reshape(4, 2, 8)
    assert same_bits(run(op, x, attr=attr, shape=shape), theirs(x).contiguous())


def test_iota_counts_to_a_size_known_when_run():
    b = GraphBuilder()
    n = symbol("N", 0, 9)
    x = b.input("x", (n,), DType.F32)
    graph = Graph({"i": b.node(Op.IOTA, (), shape=(n * 2,)), "x": x})
    assert evaluate(graph, {"x": np.zeros(3, np.float32)})["i"].tolist() == [0, 1, 2, 3, 4, 5]


def test_sizes_that_no_input_shows_are_given():
    b = GraphBuilder()
    graph = Graph({"i": b.node(Op.IOTA, (), shape=(symbol("N", 0, 9),))})
    assert evaluate(graph, {}, dims={"N": 2})["i"].tolist() == [0, 1]


def test_precise_evaluation_keeps_what_single_precision_loses():
    x = torch.tensor([1.0, 2.0**-30, -1.0])
    assert run(Op.SUM, x, attr=0) == 0.0
    assert run(Op.SUM, x, attr=0, precise=True) == 2.0**-30


def test_precise_values_pass_through_a_half_input_unrounded():
    b = GraphBuilder()
    graph = Graph({"y": b.node(Op.SQRT, (b.input("x", (1,), DType.BF16),))})
    out = evaluate(graph, {"x": np.array([2.0])}, precise=True)["y"]
    assert out.dtype == np.float64
    assert out[0] == np.sqrt(2.0)
    assert evaluate(graph, {"x": round_to_bf16(np.float32([2]))}, precise=True)["y"][0] == np.sqrt(2.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "no value"),
        ({"x": np.zeros((2, 2), np.float32), "y": np.zeros(2, np.float32)}, "needs"),
        ({"x": np.zeros(2, np.float32), "y": np.zeros(3, np.float32)}, "N is 2"),
        ({"x": np.zeros(2, np.float64), "y": np.zeros(2, np.float32)}, "float64"),
    ],
)
def test_values_that_do_not_fit_the_graph_are_refused(values, message):
    b = GraphBuilder()
    n = symbol("N", 0, 9)
    graph = Graph({"z": b.node(Op.ADD, (b.input("x", (n,), DType.F32), b.input("y", (n,), DType.F32)))})
    with pytest.raises(EvaluationError, match=message):
        evaluate(graph, values)
