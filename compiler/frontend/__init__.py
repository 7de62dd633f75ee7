"""The Tensor API: graphs written as array code. `Trace` starts one; `functional` holds the compositions."""

from compiler.frontend import functional
from compiler.frontend.tensor import Tensor, select
from compiler.frontend.trace import Trace

__all__ = ["Tensor", "Trace", "functional", "select"]
