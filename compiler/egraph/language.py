"""The egglog language of the algebra, and the facts that rules ask for. The one place that names egglog's
sorts.
"""

from __future__ import annotations

from compiler.egraph.rule import Rule

OPERATORS = (
    "Leaf", "Num", "Exp2", "Log2", "Sin", "Sqrt", "Recip", "Add", "Mul", "Div", "Mod", "Select", "Sum", "Max",
    "Online", "First",
)  # fmt: skip
RELATIONS = ("indep", "onk", "offk", "wm", "wa", "sfac", "xfac", "asp", "shf")

_HEAD = """
(datatype T (Leaf String) (Num String) (Exp2 T) (Log2 T) (Sin T) (Sqrt T) (Recip T)
  (Add T T) (Mul T T) (Div T T) (Mod T T) (Select T T T) (Sum String T) (Max String T) (Online String T T)
  (First String T))
(relation axis (String)) (relation indep (T String)) (relation onk (T String)) (relation offk (T String))
(relation wm (T String)) (relation wa (T String))
(relation sfac (T String T T)) (relation xfac (T String T T)) (relation asp (T String T T))
(relation shf (T String T T T)) (relation extent (String T)) (relation minus (T))
(ruleset facts) (ruleset algebra)
(rule ((= e (Num x)) (axis k)) ((indep e k) (offk e k)) :ruleset facts)
"""


def _facts() -> str:
    """`indep(t, k)`: some member of the class does not mention k. `onk(t, k)`: one contains a reduction over
    k. `offk(t, k)`: one contains none.
    """
    lines = []
    for op in ("Sum", "Max"):
        lines.append(f"(rule ((= e ({op} k b))) ((indep e k) (onk e k)) :ruleset facts)")
        lines.append(f"(rule ((= e ({op} j b)) (indep b k)) ((indep e k)) :ruleset facts)")
        lines.append(f"(rule ((= e ({op} j b)) (onk b k)) ((onk e k)) :ruleset facts)")
        lines.append(f"(rule ((= e ({op} j b)) (offk b k) (!= j k)) ((offk e k)) :ruleset facts)")
    lines.append("(rule ((= e (First k b)) (axis k)) ((indep e k)) :ruleset facts)")
    lines.append("(rule ((= e (First j b)) (indep b k)) ((indep e k)) :ruleset facts)")
    lines.append("(rule ((= e (First j b)) (onk b k)) ((onk e k)) :ruleset facts)")
    lines.append("(rule ((= e (First j b)) (offk b k)) ((offk e k)) :ruleset facts)")
    shapes = {1: ("Exp2", "Log2", "Sin", "Sqrt", "Recip"), 2: ("Add", "Mul", "Div", "Mod"), 3: ("Select",)}
    for arity, ops in shapes.items():
        names = "abc"[:arity]
        for op in ops:
            term = f"(= e ({op} {' '.join(names)}))"
            independent = " ".join(f"(indep {n} k)" for n in names)
            lines.append(f"(rule ({term} {independent}) ((indep e k)) :ruleset facts)")
            free = " ".join(f"(offk {n} k)" for n in names)
            lines.append(f"(rule ({term} {free}) ((offk e k)) :ruleset facts)")
            lines.extend(f"(rule ({term} (onk {n} k)) ((onk e k)) :ruleset facts)" for n in names)
    return "\n".join(lines)


def program_head(rules: tuple[Rule, ...]) -> str:
    """Sorts, facts and `rules`, ready for the terms of one definition."""
    body = "\n".join(_in_ruleset(rule.text) for rule in rules)
    return f"{_HEAD}\n{_facts()}\n{body}\n"


def _in_ruleset(text: str) -> str:
    assert text.startswith("(rule ")
    assert text.endswith(")")
    return f"{text[:-1]} :ruleset algebra)"
