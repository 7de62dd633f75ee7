"""What a rule is: one row of data, whether the e-graph applies it or a function of the lowering does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Safety(StrEnum):
    EXACT = "exact"  # same bits, infinities, NaN and -0.0 included
    REASSOCIATES = "reassociates"  # same value over the reals, rounded in another order
    NEEDS_GATE = "needs-gate"  # may lose range, precision or cancel: only the gate can admit it


class Family(StrEnum):
    GOALS = "goals"
    ALGEBRA = "algebra"
    VIEWS = "views"
    CONTRACTION = "contraction"
    CASCADED = "cascaded reductions"
    BOUNDED = "bounded loops"
    GATHER = "gather as index function"
    LAYOUT = "layout"
    PRECISION = "accumulation precision"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rewrite or one inference of the e-graph, in egglog's words.

    `given` is what it matches. `guards` are what its soundness rests on: without any one of them its numeric
    test fails. `wants` only say where to look: without all of them it stays sound. `fires_on` names a
    program of the test suite.
    """

    name: str
    family: Family
    safety: Safety
    sentence: str
    given: str
    then: str
    fires_on: str
    guards: tuple[str, ...] = ()
    wants: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The rule as egglog reads it."""
        premises = " ".join([*self.wants, self.given, *self.guards])
        return f"(rule ({premises}) ({self.then}))"


@dataclass(frozen=True, slots=True)
class Check:
    """A guard in code: `text` is an expression of the function. Dropping it puts `dropped` in its place.

    `weaker` are expressions that let more through. `harmless` says why a rewrite without the guard is still
    right, where it is; each such guard is there for another reason than soundness.
    """

    text: str
    dropped: str = "True"
    weaker: tuple[str, ...] = ()
    harmless: str = ""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One rewrite that a function of the lowering makes. `where` is `module:function`; the statement
    `applies` is reached when it fires. `checks` may lie in other functions, named as `module:function`.
    """

    name: str
    family: Family
    safety: Safety
    sentence: str
    where: str
    applies: str
    fires_on: str
    checks: tuple[Check, ...] = ()
    elsewhere: tuple[tuple[str, tuple[Check, ...]], ...] = ()

    def guarded(self) -> tuple[tuple[str, Check], ...]:
        """Every guard with the function that holds it."""
        own = [(self.where, c) for c in self.checks]
        return (*own, *((where, c) for where, checks in self.elsewhere for c in checks))
