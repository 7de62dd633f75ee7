"""Where a graph is written: named inputs and weights in, named outputs out."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.frontend.tensor import Scalar, Tensor, full
from compiler.ir import DType, Graph, GraphBuilder, Shape, verify


class Trace:
    """One graph in the making. Tensors come from here and are combined; `finish` gives the graph."""

    def __init__(self) -> None:
        self.builder = GraphBuilder()

    def input(self, name: str, shape: Shape, dtype: DType) -> Tensor:
        """A tensor given at each call."""
        return Tensor(self.builder, self.builder.input(name, shape, dtype))

    def weight(self, name: str, shape: Shape, dtype: DType) -> Tensor:
        """A tensor fixed when the graph is compiled; asking for a name again gives the same tensor."""
        return Tensor(self.builder, self.builder.weight(name, shape, dtype))

    def full(self, value: Scalar, shape: Shape, dtype: DType) -> Tensor:
        return full(self.builder, value, shape, dtype)

    def finish(self, outputs: Mapping[str, Tensor], aliases: Mapping[str, str] | None = None) -> Graph:
        """The verified graph of `outputs`; `aliases` maps an output to the input it may overwrite.

        Raises:
            VerifyError: an alias does not fit, or a rule of the graph is broken.
        """
        graph = Graph({name: tensor.node for name, tensor in outputs.items()}, aliases or {})
        verify(graph)
        return graph
