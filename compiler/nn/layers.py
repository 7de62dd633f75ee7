"""Layers without state of their own. Each reads its weights in storage dtype and computes in f32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler.frontend import Tensor
from compiler.frontend.functional import layer_norm, linear, rms_norm, silu
from compiler.ir import DType
from compiler.nn.parameters import Parameters


@dataclass(frozen=True, slots=True)
class Linear:
    """weight [out, in] and, where the model has one, bias [out]."""

    weight: Tensor
    bias: Tensor | None = None

    @classmethod
    def of(cls, parameters: Parameters, *, stores_in_out: bool = False) -> Linear:
        """`stores_in_out`: the weight lies [in, out]."""
        weight = parameters["weight"]
        return cls(weight.permute(1, 0) if stores_in_out else weight, parameters.optional("bias"))

    def __call__(self, x: Tensor) -> Tensor:
        """[.., in] -> f32 [.., out]."""
        return linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """weight [hidden], to which `offset` is added."""

    weight: Tensor
    eps: float
    offset: float = 0.0

    @classmethod
    def of(cls, parameters: Parameters, eps: float, offset: float = 0.0) -> RMSNorm:
        return cls(parameters["weight"], eps, offset)

    def __call__(self, x: Tensor) -> Tensor:
        """[.., hidden] -> f32 of that shape."""
        weight = self.weight.cast(DType.F32) + self.offset if self.offset else self.weight
        return rms_norm(x, weight, self.eps)


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """weight and bias [hidden]."""

    weight: Tensor
    bias: Tensor
    eps: float

    @classmethod
    def of(cls, parameters: Parameters, eps: float) -> LayerNorm:
        return cls(parameters["weight"], parameters["bias"], eps)

    def __call__(self, x: Tensor) -> Tensor:
        """[.., hidden] -> f32 of that shape."""
        return layer_norm(x, self.weight, self.bias, self.eps)


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
    """down(activation(gate(x)) * up(x)): SwiGLU, GeGLU."""

    gate: Linear
    up: Linear
    down: Linear
    activation: Callable[[Tensor], Tensor] = silu

    @classmethod
    def of(cls, parameters: Parameters, activation: Callable[[Tensor], Tensor] = silu) -> GatedMLP:
        gate, up, down = (Linear.of(parameters.under(name)) for name in ("gate_proj", "up_proj", "down_proj"))
        return cls(gate, up, down, activation)

    def __call__(self, x: Tensor) -> Tensor:
        """[.., hidden] -> f32 [.., hidden]."""
        return self.down(self.activation(self.gate(x)) * self.up(x))
