"""Index arithmetic as Triton text. Offsets into a buffer that may have 2^31 elements are 64 bits wide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from compiler.codegen.indices import IndexPrinter
from compiler.ir.dim import Size, bounds, product
from compiler.lower.indexing import Linear, interval, linear
from compiler.lower.terms import Kind, Term

_DIVISIONS = (Kind.FLOOR_DIV, Kind.FLOOR_MOD)


@dataclass(frozen=True, slots=True)
class TritonIndices(IndexPrinter):
    """`bind` names a text, so that it can be repeated; `other` prints what is not index arithmetic."""

    extents: Mapping[str, Size] = field(default_factory=dict)
    bind: Callable[[str], str] = str
    other: Callable[[Term], str] = str

    def linear(self, form: Linear) -> str:
        return self._sum(form, "{0}")

    def wide(self, form: Linear) -> str:
        """The same sum in 64 bits; its atoms stay in 32."""
        return self._sum(form, "tl.cast({0}, tl.int64)")

    def term(self, term: Term) -> str:
        form = linear(term)
        text = self.linear(form)
        is_one_atom = form.constant == 0 and list(form.coefficients.values()) == [1]
        return text if is_one_atom or text.isalnum() else f"({text})"

    def size(self, size: Size) -> str:
        text = IndexPrinter.size(self, size)
        return text if " " in text else text.strip("()")

    def _sum(self, form: Linear, template: str) -> str:
        parts = []
        for atom, coefficient in form.coefficients.items():
            text = self.atom(atom)
            if text == "0":
                continue
            text = template.format(text)
            parts.append(text if coefficient == 1 else f"{text} * {self.size(coefficient)}")
        if form.constant != 0 or not parts:
            parts.append(self.size(form.constant))
        return " + ".join(parts)

    def atom(self, atom: Term) -> str:
        if atom.kind in _DIVISIONS:
            return self._division(atom)
        if atom.kind in (Kind.SELECT, Kind.CAST):
            return self.other(atom)
        return IndexPrinter.atom(self, atom)

    def _division(self, atom: Term) -> str:
        """`/` and `%` of Triton round towards zero, so an index that may be negative is spelled out."""
        number, divisor = self.term(atom.args[0]), self.term(atom.args[1])
        is_quotient = atom.kind is Kind.FLOOR_DIV
        low, _ = interval(linear(atom.args[0]), self.extents)
        if low is not None and low >= 0:
            return f"({number} {'//' if is_quotient else '%'} {divisor})"
        number = self.bind(number)
        rest = f"(({number} % {divisor} + {divisor}) % {divisor})"
        return f"(({number} - {rest}) // {divisor})" if is_quotient else rest


def is_wide(shape: tuple[Size, ...]) -> bool:
    """Whether a buffer of this shape may have more elements than an int32 counts."""
    return bounds(product(shape))[1] >= 1 << 31
