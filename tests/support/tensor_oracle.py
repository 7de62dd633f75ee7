"""Runs one function twice: on our Tensors through the reference interpreter, and on PyTorch's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from compiler.frontend import Tensor, Trace
from compiler.ir import DType, bf16_to_f32, evaluate

OURS = {
    torch.float32: DType.F32,
    torch.float16: DType.F16,
    torch.bfloat16: DType.BF16,
    torch.int32: DType.I32,
    torch.bool: DType.BOOL,
}


def ours(function: Callable[..., Tensor], *tensors: torch.Tensor, precise: bool = False) -> torch.Tensor:
    """What `function` of our Tensors gives for these values, as a PyTorch tensor."""
    trace = Trace()
    operands = [trace.input(f"x{k}", tuple(t.shape), OURS[t.dtype]) for k, t in enumerate(tensors)]
    result = function(*operands)
    values = {f"x{k}": _storage(t) for k, t in enumerate(tensors)}
    out = evaluate(trace.finish({"y": result}), values, precise=precise)["y"]
    if result.dtype is DType.BF16 and not precise:
        return torch.from_numpy(bf16_to_f32(out)).bfloat16()
    return torch.from_numpy(np.array(out))


def _storage(t: torch.Tensor) -> np.ndarray:
    t = t.contiguous()
    return t.view(torch.int16).numpy().view(np.uint16) if t.dtype is torch.bfloat16 else t.numpy()
