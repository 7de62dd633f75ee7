"""The vocabulary: its size, its partition, and its page."""

from __future__ import annotations

from pathlib import Path

from compiler.ir.document import primitives_markdown
from compiler.ir.ops import COMPOSITES, ELEMENTWISE, LEAVES, PRIMITIVES, REDUCTIONS, SPECS, VIEWS, Op

PAGE = Path(__file__).parents[3] / "docs" / "primitives.md"


def test_there_are_exactly_fifteen_primitives():
    names = "EXP2 LOG2 SIN SQRT RECIP ADD MUL MOD LESS_THAN SUM MAX GATHER SCATTER CAST IOTA"
    assert list(PRIMITIVES) == [Op[name] for name in names.split()]


def test_the_tables_part_the_ops():
    tables = [set(PRIMITIVES), set(COMPOSITES), set(LEAVES), set(VIEWS)]
    assert sum(map(len, tables)) == len(set().union(*tables)) == len(Op)
    assert set(SPECS) == set(Op)


def test_each_row_describes_its_own_op():
    assert all(op is spec.op and spec.meaning for op, spec in SPECS.items())


def test_elementwise_ops_and_reductions_are_computed_ops():
    assert {*ELEMENTWISE, *REDUCTIONS} < {*PRIMITIVES, *COMPOSITES}
    assert not ELEMENTWISE & REDUCTIONS


def test_the_page_of_primitives_is_current():
    assert PAGE.read_text() == primitives_markdown(), (
        "run: python -m compiler.ir.document > docs/primitives.md"
    )
