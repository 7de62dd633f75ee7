"""ResNets of basic layers (ResNet-18, -34): convolutions, batch norms, additions. Hugging Face's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.frontend import Tensor, Trace
from compiler.frontend.functional import mean, relu
from compiler.ir import DType, Graph, Shape
from compiler.nn import BatchNorm2d, Conv2d, Parameters, max_pool


@dataclass(frozen=True, slots=True)
class ResNetSpec:
    """`depths` counts the layers of each stage, whose first halves the image but in the first stage."""

    image: tuple[int, int, int]
    depths: tuple[int, ...]


def build_resnet(spec: ResNetSpec, shapes: Mapping[str, Shape], *, batch: int, dtype: DType) -> Graph:
    """The model up to its pooled features. `shapes` are those of its tensors, stored in `dtype`.

    Input: image [batch, channels, h, w] f32. Outputs, f32: features [batch, width, h', w'], pooled
    [batch, width].
    """
    trace = Trace()
    parameters = Parameters(trace, shapes, dtype)
    x = trace.input("image", (batch, *spec.image), DType.F32)
    stem = _ConvNorm.of(parameters.under("embedder.embedder"), stride=2, padding=3)
    x = max_pool(relu(stem(x)), 3, stride=2, padding=1)
    for stage, depth in enumerate(spec.depths):
        layers = parameters.under(f"encoder.stages.{stage}.layers")
        for index in range(depth):
            x = BasicLayer.of(layers.under(str(index)), stride=2 if stage and not index else 1)(x)
    pooled = mean(x.reshape(*x.shape[:2], -1), -1)
    return trace.finish({"features": x, "pooled": pooled})


@dataclass(frozen=True, slots=True)
class BasicLayer:
    """Two 3 x 3 convolutions, added to their input or to its projection."""

    first: _ConvNorm
    second: _ConvNorm
    shortcut: _ConvNorm | None

    @classmethod
    def of(cls, parameters: Parameters, stride: int = 1) -> BasicLayer:
        """It projects its input where there are parameters for that."""
        has_shortcut = parameters.has("shortcut.convolution.weight")
        return cls(
            _ConvNorm.of(parameters.under("layer.0"), stride, padding=1),
            _ConvNorm.of(parameters.under("layer.1"), padding=1),
            _ConvNorm.of(parameters.under("shortcut"), stride) if has_shortcut else None,
        )

    def __call__(self, x: Tensor) -> Tensor:
        """[batch, in, h, w] -> f32 [batch, out, h', w']."""
        kept = x if self.shortcut is None else self.shortcut(x)
        return relu(self.second(relu(self.first(x))) + kept)


@dataclass(frozen=True, slots=True)
class _ConvNorm:
    convolution: Conv2d
    norm: BatchNorm2d

    @classmethod
    def of(cls, parameters: Parameters, stride: int = 1, padding: int = 0) -> _ConvNorm:
        convolution = Conv2d.of(parameters.under("convolution"), stride, padding)
        return cls(convolution, BatchNorm2d.of(parameters.under("normalization")))

    def __call__(self, x: Tensor) -> Tensor:
        return self.norm(self.convolution(x))
