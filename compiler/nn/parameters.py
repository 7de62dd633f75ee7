"""Where layers get their weights: by name, with shapes from the checkpoint's own table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.frontend import Tensor, Trace
from compiler.ir import DType, Shape


@dataclass(frozen=True, slots=True)
class Parameters:
    """The weights of a model, or of the part under `prefix`, in one storage dtype."""

    trace: Trace
    shapes: Mapping[str, Shape]
    dtype: DType
    prefix: str = ""

    def under(self, name: str) -> Parameters:
        """The parameters of the part called `name`."""
        return Parameters(self.trace, self.shapes, self.dtype, f"{self.prefix}{name}.")

    def has(self, name: str) -> bool:
        """Whether the model has a parameter of that name."""
        return self.prefix + name in self.shapes

    def __getitem__(self, name: str) -> Tensor:
        full_name = self.prefix + name
        return self.trace.weight(full_name, self.shapes[full_name], self.dtype)

    def optional(self, name: str) -> Tensor | None:
        """The parameter, or None where the model has none of that name (a bias)."""
        return self[name] if self.has(name) else None
