"""Result dtypes are PyTorch's, for every pair of operand kinds."""

from __future__ import annotations

import itertools

import pytest
import torch

from compiler.frontend.promotion import Rank, promote_types, result_dtype, scalar_dtype
from compiler.ir import DType

TORCH = {
    DType.F32: torch.float32,
    DType.F16: torch.float16,
    DType.BF16: torch.bfloat16,
    DType.I32: torch.int32,
    DType.BOOL: torch.bool,
}
OURS = {**{v: k for k, v in TORCH.items()}, torch.int64: DType.I32}
SCALARS = [True, 3, 2.5]
TENSORS = [(dtype, rank) for dtype in DType for rank in (Rank.ZERO_DIM, Rank.DIMENSIONED)]


def tensor(dtype: DType, rank: Rank) -> torch.Tensor:
    return torch.ones((2,) if rank is Rank.DIMENSIONED else (), dtype=TORCH[dtype])


@pytest.mark.pitfall("C8")
@pytest.mark.parametrize(("a", "b"), list(itertools.product(TENSORS, TENSORS)))
def test_two_tensors_promote_as_in_pytorch(a, b):
    assert result_dtype([a, b]) is OURS[torch.result_type(tensor(*a), tensor(*b))]


@pytest.mark.pitfall("C8")
@pytest.mark.parametrize("scalar", SCALARS)
@pytest.mark.parametrize("a", TENSORS)
def test_a_tensor_and_a_number_promote_as_in_pytorch(a, scalar):
    ours = result_dtype([a, (scalar_dtype(scalar), Rank.SCALAR)])
    assert ours is OURS[torch.result_type(tensor(*a), scalar)]


@pytest.mark.pitfall("C8")
@pytest.mark.parametrize(("a", "b"), list(itertools.product(DType, DType)))
def test_types_promote_as_in_pytorch(a, b):
    assert promote_types(a, b) is OURS[torch.promote_types(TORCH[a], TORCH[b])]
