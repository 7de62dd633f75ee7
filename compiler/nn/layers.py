"""Layers without state of their own. Each reads its weights in storage dtype and computes in f32."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.frontend import Tensor
from compiler.frontend.functional import linear, rms_norm, silu
from compiler.ir import DType
from compiler.nn.parameters import Parameters


@dataclass(frozen=True, slots=True)
class Linear:
    """weight [out, in] and, where the model has one, bias [out]."""

    weight: Tensor
    bias: Tensor | None = None

    @classmethod
    def of(cls, parameters: Parameters) -> Linear:
        return cls(parameters["weight"], parameters.optional("bias"))

    def __call__(self, x: Tensor) -> Tensor:
        """[.., in] -> f32 [.., out]."""
        return linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """weight [hidden]."""

    weight: Tensor
    eps: float

    @classmethod
    def of(cls, parameters: Parameters, eps: float) -> RMSNorm:
        return cls(parameters["weight"], eps)

    def __call__(self, x: Tensor) -> Tensor:
        """[.., hidden] -> f32 of that shape."""
        return rms_norm(x, self.weight, self.eps)


@dataclass(frozen=True, slots=True)
class Embedding:
    """weight [vocab, hidden]."""

    weight: Tensor

    @classmethod
    def of(cls, parameters: Parameters) -> Embedding:
        return cls(parameters["weight"])

    def __call__(self, ids: Tensor) -> Tensor:
        """i32 [..] -> f32 [.., hidden]."""
        return self.weight[ids,].cast(DType.F32)


@dataclass(frozen=True, slots=True)
class GatedMLP:
    """down(silu(gate(x)) * up(x)): SwiGLU."""

    gate: Linear
    up: Linear
    down: Linear

    @classmethod
    def of(cls, parameters: Parameters) -> GatedMLP:
        names = ("gate_proj", "up_proj", "down_proj")
        return cls(*(Linear.of(parameters.under(name)) for name in names))

    def __call__(self, x: Tensor) -> Tensor:
        """[.., hidden] -> f32 [.., hidden]."""
        return self.down(silu(self.gate(x)) * self.up(x))
