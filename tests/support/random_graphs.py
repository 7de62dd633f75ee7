"""Random well-formed graphs for property tests: every op and dtype, symbolic sizes, odd names, constants."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from compiler.ir import ELEMENTWISE, REDUCTIONS, DType, Graph, GraphBuilder, Node, Op, Size, is_float, symbol
from compiler.ir.ops import SPECS

T = symbol("T", 1, 6)
M = symbol("M", 2, 4)
_SIZES: tuple[Size, ...] = (1, 2, 3, 4, T, M, T * M, M * 2)
_NAMES = st.text(min_size=1, max_size=6)


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 12) -> Graph:
    """A verified-by-construction graph; its ops are drawn among those that fit the nodes made so far."""
    maker = _Maker(draw, GraphBuilder())
    nodes = [maker.leaf() for _ in range(draw(st.integers(1, 3)))]
    for _ in range(draw(st.integers(0, max_nodes))):
        made = maker.step(draw(st.sampled_from(nodes)), nodes)
        if made is not None:
            nodes.append(made)
    count = draw(st.integers(1, min(3, len(nodes))))
    names = draw(st.lists(_NAMES, min_size=count, max_size=count, unique=True))
    outputs = dict(zip(names, nodes[-count:], strict=True))
    return Graph(outputs, _aliases(outputs))


def _aliases(outputs: dict[str, Node]) -> dict[str, str]:
    """Each output that is itself an input may overwrite it."""
    return {name: str(node.attr) for name, node in outputs.items() if node.op is Op.INPUT}


class _Maker:
    def __init__(self, draw: st.DrawFn, builder: GraphBuilder) -> None:
        self.draw = draw
        self.builder = builder
        self._names: set[str] = set()

    def leaf(self) -> Node:
        shape = tuple(self.draw(st.lists(st.sampled_from(_SIZES), max_size=3)))
        name = self.draw(_NAMES.filter(lambda n: n not in self._names))
        self._names.add(name)
        op = self.draw(st.sampled_from([Op.INPUT, Op.WEIGHT]))
        return self.builder.node(op, (), name, shape=shape, dtype=self.draw(st.sampled_from(list(DType))))

    def step(self, x: Node, nodes: list[Node]) -> Node | None:
        kind = self.draw(st.sampled_from(["elementwise", "reduce", "view", "cast", "const", "move", "leaf"]))
        return getattr(self, f"_{kind}")(x, nodes)

    def _leaf(self, x: Node, nodes: list[Node]) -> Node:
        return self.leaf()

    def _elementwise(self, x: Node, nodes: list[Node]) -> Node | None:
        op = self.draw(st.sampled_from(sorted(ELEMENTWISE - {Op.CAST})))
        y = self.draw(st.sampled_from([n for n in nodes if (n.shape, n.dtype) == (x.shape, x.dtype)]))
        if op is Op.SELECT:
            conditions = [n for n in nodes if n.shape == x.shape and n.dtype is DType.BOOL]
            return self._make(op, self.draw(st.sampled_from(conditions)), x, y) if conditions else None
        if x.dtype is DType.BOOL or (op is Op.FLOOR_DIV and x.dtype is not DType.I32):
            return None
        needs_float = op in {Op.EXP2, Op.LOG2, Op.SIN, Op.SQRT, Op.RECIP, Op.DIV}
        if needs_float and not is_float(x.dtype):
            return None
        return self._make(op, *((x, y) if SPECS[op].arity == 2 else (x,)))

    def _reduce(self, x: Node, nodes: list[Node]) -> Node | None:
        if not x.shape or x.dtype is DType.BOOL:
            return None
        axis = self.draw(st.integers(0, len(x.shape) - 1))
        return self._make(self.draw(st.sampled_from(sorted(REDUCTIONS))), x, attr=axis)

    def _cast(self, x: Node, nodes: list[Node]) -> Node:
        return self._make(Op.CAST, x, dtype=self.draw(st.sampled_from(list(DType))))

    def _const(self, x: Node, nodes: list[Node]) -> Node:
        dtype = self.draw(st.sampled_from(list(DType)))
        values: st.SearchStrategy[Any] = st.floats(width=64)
        if not is_float(dtype):
            values = st.booleans() if dtype is DType.BOOL else st.integers(-(2**31), 2**31 - 1)
        return self.builder.const(self.draw(values), dtype)

    def _view(self, x: Node, nodes: list[Node]) -> Node | None:
        op = self.draw(st.sampled_from([Op.PERMUTE, Op.EXPAND, Op.RESHAPE, Op.SLICE]))
        if op is Op.PERMUTE:
            return self._make(op, x, attr=tuple(self.draw(st.permutations(range(len(x.shape))))))
        if op is Op.EXPAND:
            at = self.draw(st.integers(0, len(x.shape)))
            size = self.draw(st.sampled_from(_SIZES))
            return self._make(op, x, attr=at, shape=(*x.shape[:at], size, *x.shape[at:]))
        if op is Op.RESHAPE:
            at = self.draw(st.integers(0, len(x.shape)))
            return self._make(op, x, shape=(*x.shape[:at], 1, *x.shape[at:]))
        return self._slice(x)

    def _slice(self, x: Node) -> Node | None:
        fixed = [d for d, size in enumerate(x.shape) if isinstance(size, int)]
        if not fixed:
            return None
        axis = self.draw(st.sampled_from(fixed))
        extent = x.shape[axis]
        assert isinstance(extent, int)
        start, step = self.draw(st.integers(0, max(extent - 1, 0))), self.draw(st.integers(1, 2))
        length = self.draw(st.integers(0, (extent - start + step - 1) // step))
        return self._make(
            Op.SLICE, x, attr=(axis, start, step), shape=(*x.shape[:axis], length, *x.shape[axis + 1 :])
        )

    def _move(self, x: Node, nodes: list[Node]) -> Node | None:
        if not x.shape:
            return None
        index = self._make(Op.IOTA, shape=(1,), dtype=DType.I32)
        taken = self._make(Op.GATHER, x, index)
        return self.draw(st.sampled_from([taken, self._make(Op.SCATTER, x, index, taken)]))

    def _make(self, op: Op, *inputs: Node, **given: Any) -> Node:
        return self.builder.node(op, inputs, given.pop("attr", None), **given)
