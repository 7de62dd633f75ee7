"""Writes docs/primitives.md from the table of ops: `python -m compiler.ir.document > docs/primitives.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from compiler.ir.dtype import DType, itemsize
from compiler.ir.ops import COMPOSITES, LEAVES, PRIMITIVES, VIEWS, Op, OpSpec, Structure

_HEAD = """\
# Primitives

Generated from `compiler/ir/ops.py` by `python -m compiler.ir.document`; a test fails when this page is old.

A graph is a DAG of tensor values. Every value is made by one of 15 primitives, a composite, a leaf or a view.
The reference interpreter (`compiler/ir/reference.py`) evaluates each with the NumPy function in the table and
is checked against PyTorch. Elementwise ops take operands of equal shape: broadcasting is spelled with Expand.
Half floats (f16, bf16) are computed in f32 and rounded once per op, to nearest, ties to even.
"""


def primitives_markdown() -> str:
    """The whole page."""
    sections = [
        _HEAD,
        "## Element types\n\n" + _dtypes(),
        f"## The {len(PRIMITIVES)} primitives\n\n" + _computed(PRIMITIVES),
        "## Composites\n\nNamed nodes where a composition of primitives would be inexact or slow; "
        "see `docs/adr/0002-composites.md`.\n\n" + _computed(COMPOSITES),
        "## Leaves\n\n" + _structures(LEAVES),
        "## Views\n\nViews compute nothing; the lowering turns them into index arithmetic.\n\n"
        + _structures(VIEWS),
    ]
    return "\n".join(sections)


def _computed(table: Mapping[Op, OpSpec]) -> str:
    header = ("op", "operands", "shape", "dtype", "meaning")
    return _table(
        header,
        (
            (s.op, _arity(s.arity, s.is_variadic), s.shape.text, s.dtype.text, s.meaning)
            for s in table.values()
        ),
    )


def _structures(table: Mapping[Op, Structure]) -> str:
    header = ("op", "attribute", "shape", "meaning")
    return _table(header, ((s.op, s.attr, s.shape.text, s.meaning) for s in table.values()))


def _dtypes() -> str:
    return _table(("dtype", "bytes"), ((dtype, str(itemsize(dtype))) for dtype in DType))


def _arity(least: int, is_variadic: bool) -> str:
    return f"{least} or more" if is_variadic else str(least)


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(primitives_markdown())
