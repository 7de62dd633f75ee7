"""BERT: an encoder that sees both ways, with norms after each addition. Hugging Face's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from compiler.frontend import Tensor, Trace
from compiler.frontend.functional import additive_mask, arange, gelu, softmax, tanh
from compiler.ir import DType, Graph, Shape, Size
from compiler.nn import Embedding, LayerNorm, Linear, Parameters


@dataclass(frozen=True, slots=True)
class BertSpec:
    """What the shapes of a BERT's tensors don't say."""

    layers: int
    heads: int
    eps: float = 1e-12
    activation: Callable[[Tensor], Tensor] = gelu


def build_bert(
    spec: BertSpec, shapes: Mapping[str, Shape], *, batch: Size, length: Size, dtype: DType
) -> Graph:
    """The encoder. `shapes` are those of its tensors, which are stored in `dtype`.

    Inputs: ids and types [batch, length] i32, mask [batch, length] bool (false is padding; a row needs a true
    one). Outputs, f32: hidden [batch, length, width], and pooled [batch, width] where there is a pooler.
    """
    trace = Trace()
    parameters = Parameters(trace, shapes, dtype)
    ids, types = (trace.input(name, (batch, length), DType.I32) for name in ("ids", "types"))
    mask = additive_mask(trace.input("mask", (batch, length), DType.BOOL))
    embeddings = parameters.under("embeddings")
    words, kinds, places = (
        Embedding.of(embeddings.under(f"{name}_embeddings")) for name in ("word", "token_type", "position")
    )
    summed = words(ids) + kinds(types) + places(arange(trace.builder, length))
    hidden = LayerNorm.of(embeddings.under("LayerNorm"), spec.eps)(summed)
    for index in range(spec.layers):
        hidden = EncoderLayer.of(parameters.under(f"encoder.layer.{index}"), spec)(hidden, mask)
    outputs = {"hidden": hidden}
    if parameters.has("pooler.dense.weight"):
        outputs["pooled"] = tanh(Linear.of(parameters.under("pooler.dense"))(hidden[:, 0]))
    return trace.finish(outputs)


@dataclass(frozen=True, slots=True)
class EncoderLayer:
    """Attention and MLP, each added to its input and then normed."""

    query: Linear
    key: Linear
    value: Linear
    mixed: Linear
    mixed_norm: LayerNorm
    up: Linear
    down: Linear
    norm: LayerNorm
    spec: BertSpec

    @classmethod
    def of(cls, parameters: Parameters, spec: BertSpec) -> EncoderLayer:
        def linear(name: str) -> Linear:
            return Linear.of(parameters.under(name))

        def norm(name: str) -> LayerNorm:
            return LayerNorm.of(parameters.under(name), spec.eps)

        return cls(
            linear("attention.self.query"),
            linear("attention.self.key"),
            linear("attention.self.value"),
            linear("attention.output.dense"),
            norm("attention.output.LayerNorm"),
            linear("intermediate.dense"),
            linear("output.dense"),
            norm("output.LayerNorm"),
            spec,
        )

    def __call__(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """[batch, length, width] f32 in and out; `mask` [batch, length] is added to scores."""
        hidden = self.mixed_norm(hidden + self.mixed(self._attended(hidden, mask)))
        return self.norm(hidden + self.down(self.spec.activation(self.up(hidden))))

    def _attended(self, hidden: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        assert isinstance(width, int), "a model has a fixed width"
        heads, head_dim = self.spec.heads, width // self.spec.heads
        query, key, value = (
            project(hidden).reshape(batch, length, heads, head_dim).permute(0, 2, 1, 3)
            for project in (self.query, self.key, self.value)
        )
        scores = (query.unsqueeze(3) * key.unsqueeze(2)).sum(-1) * head_dim**-0.5
        shares = softmax(scores + mask.reshape(batch, 1, 1, length), -1)
        mixed = (shares.unsqueeze(-1) * value.unsqueeze(2)).sum(3)
        return mixed.permute(0, 2, 1, 3).reshape(batch, length, width)
