"""Writes docs/rules.md from the table of rules: `python -m docs.generate.rules`."""

from __future__ import annotations

from pathlib import Path

from compiler.egraph.rewrites import TABLE
from compiler.egraph.rule import Family, Rewrite, Rule

PAGE = Path(__file__).parents[1] / "rules.md"
_HEAD = """\
# Rules

Made from the tables in `compiler/egraph` by `python -m docs.generate.rules`; a test fails when this page is
old.

Everything that rewrites a program, in one table. A rule of the e-graph is shown as it is matched and
concluded; a rewrite in code names its function. The classes:

- `exact`: the same bits, infinities, NaN and -0.0 included.
- `reassociates`: the same value over the reals, rounded in another order; in budget where all is finite.
- `needs-gate`: may lose range or precision, or cancel; only the gate admits what comes of it.

Each has a numeric test on at least 200 random cases, and a program of `tests/support` that makes it fire. A
guard is what soundness rests on: tests drop each one and expect wrong numbers. The few that can be dropped
without harm say why.

In the e-graph's words, `indep t k`: t does not vary along k. `onk t k`: t reads a reduction over k; `offk
t k`: it reads none. `sfac e k d i` and `xfac`: e = d * i with i independent of k. `asp`: e = d + i. `shf
e k r u i`: e = (u + i) * r. `wm`, `wa`: e is worth splitting into factors, or terms. Goals claim nothing.
No rule is shaped like a layer of a model.
"""


def page() -> str:
    return _HEAD + "".join(_section(family) for family in Family)


def _section(family: Family) -> str:
    rows = "".join(_row(r) for r in TABLE if r.family is family)
    head = (
        "| rule | class | what it says | how | guards | fires on |\n| --- | --- | --- | --- | --- | --- |\n"
    )
    return f"\n## {family.capitalize()}\n\n{head}{rows}"


def _row(r: Rule | Rewrite) -> str:
    how, guards = _of_rule(r) if isinstance(r, Rule) else _of_rewrite(r)
    cells = [f"`{r.name}`", r.safety, r.sentence, how, "<br>".join(guards) or "none", f"`{r.fires_on}`"]
    return f"| {' | '.join(cells)} |\n"


def _of_rule(r: Rule) -> tuple[str, list[str]]:
    matched = " ".join([r.given, *r.wants])
    return f"`{matched}` gives `{r.then}`", [f"`{g}`" for g in r.guards]


def _of_rewrite(r: Rewrite) -> tuple[str, list[str]]:
    guards = []
    for where, check in r.guarded():
        place = "" if where == r.where else f" in `{where.split(':')[1]}`"
        because = f" (harmless to drop: {check.harmless})" if check.harmless else ""
        wanted = "unless " if check.dropped == "False" else ""
        guards.append(f"{wanted}`{check.text}`{place}{because}".replace("|", "\\|"))
    return f"`{r.where}`", guards


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
