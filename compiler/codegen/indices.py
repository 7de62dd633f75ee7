"""Index arithmetic as source text, shared by the printers: both C++ and Triton spell integers alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler.ir.dim import Dim, Size
from compiler.ir.dtype import DType
from compiler.lower.errors import LoweringError
from compiler.lower.indexing import Linear, flatten, linear
from compiler.lower.recombine import recombined
from compiler.lower.terms import Kind, Term, axis_of


@dataclass(frozen=True, slots=True)
class IndexPrinter:
    """Prints index terms. `axis` spells an axis's index, `load` reads an index from memory, `symbol` names
    a size.
    """

    axis: Callable[[str], str]
    load: Callable[[Term], str]
    symbol: Callable[[str], str]
    floor_div: str = "c_floor_div({0}, {1})"
    floor_mod: str = "c_floor_mod({0}, {1})"
    choice: str = "({0} ? {1} : {2})"

    def size(self, size: Size) -> str:
        """A size as an expression over the program's symbols."""
        if not isinstance(size, Dim):
            return str(size)
        terms = []
        for monomial, coefficient in size.terms:
            factors = [self.symbol(s.name) for s in monomial]
            if coefficient != 1 or not factors:
                factors.append(str(coefficient))
            terms.append(" * ".join(factors))
        return f"({' + '.join(terms)})"

    def flat(self, load: Term, shape: tuple[Size, ...]) -> str:
        """Row-major position of a load in its buffer, in elements."""
        return self.linear(recombined(linear(flatten(load.args, shape))))

    def linear(self, form: Linear) -> str:
        parts = []
        for atom, c in form.coefficients.items():
            text = self.atom(atom)
            parts.append(text if c == 1 else f"{text} * {self.size(c)}")
        if form.constant != 0 or not parts:
            parts.append(self.size(form.constant))
        return " + ".join(parts)

    def term(self, term: Term) -> str:
        return f"({self.linear(linear(term))})"

    def atom(self, atom: Term) -> str:
        match atom.kind:
            case Kind.IDX:
                return self.axis(axis_of(atom))
            case Kind.LOAD:
                return self.load(atom)
            case Kind.FLOOR_DIV:
                return self.floor_div.format(*(self.term(a) for a in atom.args))
            case Kind.FLOOR_MOD:
                return self.floor_mod.format(*(self.term(a) for a in atom.args))
            case Kind.MUL:
                return f"({self.term(atom.args[0])} * {self.term(atom.args[1])})"
            case Kind.MOD:
                return f"({self.term(atom.args[0])} % {self.term(atom.args[1])})"
            case Kind.SELECT:
                chosen, one, other = atom.args
                return self.choice.format(self.condition(chosen), self.term(one), self.term(other))
            case Kind.CAST if atom.args[0].dtype is DType.BOOL:
                return self.choice.format(self.condition(atom.args[0]), "1", "0")
            case _:
                raise LoweringError(f"an index that follows from other values than indices: {atom!r:.200}")

    def condition(self, term: Term) -> str:
        """A bool that follows from indices, or is read from memory."""
        match term.kind:
            case Kind.LT if term.args[0].dtype is DType.I32:
                return f"({self.term(term.args[0])} < {self.term(term.args[1])})"
            case Kind.SELECT:
                return self.choice.format(*(self.condition(a) for a in term.args))
            case Kind.NUM:
                return "1" if term.attr else "0"
            case Kind.LOAD:
                return f"({self.load(term)} != 0)"
            case _:
                raise LoweringError(f"an index that follows from other values than indices: {term!r:.200}")
