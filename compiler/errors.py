"""The compiler's error tree: facts in attributes, the sentence in `str()`. The worker translates it once.

    CompilerError
    ├── GraphError              a graph that means nothing
    │   ├── DimError            a size that cannot be computed
    │   ├── ShapeError          shapes that do not fit an op
    │   ├── DTypeError          dtypes that do not fit an op
    │   ├── VerifyError         a finished graph that breaks a rule; names the node
    │   └── GraphSyntaxError    text that is not a graph; names the line
    ├── EvaluationError         a graph that cannot be computed on these values
    │   └── IndexOutOfRange     a Gather that reads outside its data
    └── UnsupportedModel        a model that the zoo cannot build; says what and why

Packages of the compiler add narrower classes of their own under `CompilerError`.
"""

from __future__ import annotations


class CompilerError(Exception):
    """Root of every error the compiler raises on purpose. `code` is public and never changes."""

    code = "compiler_error"


class GraphError(CompilerError):
    code = "invalid_graph"


class DimError(GraphError):
    code = "invalid_dim"


class ShapeError(GraphError):
    code = "invalid_shape"


class DTypeError(GraphError):
    code = "invalid_dtype"


class VerifyError(GraphError):
    """A graph breaks a rule. `where` describes the node, or is empty for a rule about the whole graph."""

    code = "graph_not_verified"

    def __init__(self, message: str, *, where: str = "") -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.where = where


class GraphSyntaxError(GraphError):
    """Text that is not a graph. `line` counts from 1."""

    code = "graph_syntax"

    def __init__(self, message: str, *, line: int) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


class EvaluationError(CompilerError):
    code = "evaluation_failed"


class IndexOutOfRange(EvaluationError):
    """A Gather read outside its data on `axis`."""

    code = "index_out_of_range"

    def __init__(self, axis: int, extent: int, lowest: int, highest: int) -> None:
        super().__init__(f"gather reads [{lowest}, {highest}] on axis {axis}, which has {extent} elements")
        self.axis = axis
        self.extent = extent


class UnsupportedModel(CompilerError):
    code = "unsupported_model"
