"""What a rule of the e-graph claims, computed: its own text is read, each side evaluated on random numbers.

`wrong(rule)` draws the variables of the rule so that its premises hold, and says in words where its
conclusion does not. A factor, a term or a guarded variable is one value a row; everything else varies
along k. Knows no rule by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from compiler.egraph.rule import Rule, Safety
from tests.support.random_values import LENGTHS, is_gated, same_bits, values

Array: TypeAlias = npt.NDArray[Any]
Expr: TypeAlias = "str | list[Expr]"

ROWS = 36
_SLACK, _CHAIN = 4.0, 2.0**-22
_TILE = 4
_SPLITS: Mapping[str, str] = {"sfac": "Mul", "xfac": "Mul", "asp": "Add"}
_STEERING = {"wm", "wa", "onk"}
_UNARY: Mapping[str, Callable[[Array], Array]] = {"Exp2": np.exp2, "Recip": np.reciprocal}
_BINARY: Mapping[str, Callable[[Array, Array], Array]] = {"Add": np.add, "Mul": np.multiply, "Div": np.divide}


def parsed(text: str) -> list[Expr]:
    """The s-expressions of `text`."""
    stack: list[list[Expr]] = [[]]
    for token in text.replace("(", " ( ").replace(")", " ) ").split():
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    (out,) = stack
    return out


@dataclass(slots=True)
class _World:
    """Values of a rule's variables on `rows` cases over an axis of `n` points."""

    premises: list[Expr]
    rng: np.random.Generator
    rows: int
    n: int
    precise: bool
    drawn: dict[str, Array] = field(default_factory=dict)
    means: dict[str, Expr] = field(default_factory=dict)
    alone: set[str] = field(default_factory=set)
    steady: set[str] = field(default_factory=set)
    seen: list[Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        for p in self.premises:
            assert isinstance(p, list)
            head, *rest = p
            names = [str(x) for x in rest if isinstance(x, str)]
            if head in _SPLITS:
                whole, _, d, i = names
                self.means[whole] = [_SPLITS[str(head)], d, i]
                self.alone.add(i)
            elif head == "shf":
                whole, _, r, u, i = names
                self.means[whole] = ["Mul", ["Add", u, i], r]
                self.alone.add(i)
            elif head == "indep":
                self.alone.add(names[0])
            elif head == "offk":
                self.steady.add(names[0])
            elif head == "=":
                self.means[names[0]] = rest[1]
            elif head == "extent":
                self.drawn[names[1]] = np.full((1, 1), self.n, self._type)
            elif head == "minus":
                self.drawn[names[0]] = np.full((1, 1), -1, self._type)
            else:
                assert head in _STEERING, head

    @property
    def _type(self) -> type:
        return np.float64 if self.precise else np.float32

    def value(self, x: Expr) -> Array:
        if isinstance(x, str):
            found = self.value(self.means[x]) if x in self.means else self._draw(x)
        else:
            found = self._apply(x)
        self.seen.append(found)
        return found

    def _draw(self, name: str) -> Array:
        if name not in self.drawn:
            width = 1 if name in self.alone else self.n
            if self.precise:  # magnitudes at which a ratio can be formed; a factor is a positive number
                spread = self.rng.uniform(-3, 3, (self.rows, width))
                self.drawn[name] = np.exp2(spread) if name in self.alone else spread
            else:
                self.drawn[name] = values(self.rng, self.rows, width)
        return self.drawn[name]

    def _apply(self, x: list[Expr]) -> Array:
        head = str(x[0])
        if head in _UNARY:
            return _UNARY[head](self.value(x[1]))
        if head in _BINARY:
            return _BINARY[head](self.value(x[1]), self.value(x[2]))
        if head == "First":
            found = self.value(x[2])
            return found[:, :1]
        if head == "Online":
            return self._online(x[2], x[3])
        body = self.value(x[2])
        wide = np.broadcast_to(body, (self.rows, self.n))
        if head == "Sum":
            return wide.sum(1, keepdims=True)
        assert head == "Max"
        return wide.max(1, keepdims=True, initial=-np.inf)

    def _online(self, body: Expr, factor: Expr) -> Array:
        """Tile by tile, the factor another one at each; what was summed so far is rescaled. Whatever else
        may read a reduction over k is another one at each, too.
        """
        factors = [n for n in sorted(self.alone) if n not in self.means]
        moving = {n for n in self.drawn if n not in self.steady and n not in self.means}
        last = {n: self._draw(n) for n in [*factors, *sorted(moving)]}
        total, before = np.zeros((self.rows, 1)), None
        for start in range(0, self.n, _TILE):
            is_last = start + _TILE >= self.n
            for name, x in last.items():
                self.drawn[name] = x if is_last else x * np.exp2(self.rng.uniform(-3, 3, (self.rows, 1)))
            now = self.value(factor)
            total = total if before is None else total * (now / before)
            wide = np.broadcast_to(self.value(body), (self.rows, self.n))
            total = total + wide[:, start : start + _TILE].sum(1, keepdims=True)
            before = now
        self.drawn.update(last)
        return total

    def scale(self) -> Array:
        """By row, the largest magnitude that was summed or computed."""
        with np.errstate(all="ignore"):
            sums = [np.abs(np.broadcast_to(s, (self.rows, s.shape[1]))).sum(1) for s in self.seen]
        return np.max([np.where(np.isfinite(s), s, 0.0) for s in sums], axis=0)

    def is_finite(self) -> Array:
        """By row: everything that was computed is finite."""
        return np.all(
            [np.isfinite(np.broadcast_to(s, (self.rows, s.shape[1]))).all(1) for s in self.seen], axis=0
        )


def wrong(rule: Rule, seed: int = 0) -> Iterator[str]:
    """Each disagreement of a rule's conclusion with its premises, over all lengths of k."""
    premises = parsed(" ".join([rule.given, *rule.guards]))
    conclusions = parsed(rule.then)
    heads = {str(p[0]) for p in [*premises, *conclusions] if isinstance(p, list)}
    lengths = [n for n in LENGTHS if n or "extent" not in heads]
    for n in lengths:
        for conclusion in conclusions:
            assert isinstance(conclusion, list)
            yield from _judge(rule, premises, conclusion, n, seed, precise="xfac" in heads)


def cases(rule: Rule) -> int:
    """Random cases that `wrong` compares."""
    return ROWS * (len(LENGTHS) - ("extent" in rule.given))


def _judge(
    rule: Rule, premises: list[Expr], conclusion: list[Expr], n: int, seed: int, *, precise: bool
) -> Iterator[str]:
    head, name, *rest = conclusion
    if head in ("wm", "wa"):
        return  # a goal claims nothing
    world = _World(premises, np.random.default_rng([seed, n]), ROWS, n, precise)
    with np.errstate(all="ignore"):
        before = world.value(name)
        finite, scale = world.is_finite(), world.scale()
        if head in {*_SPLITS, "shf"}:
            *d, i = rest[1:]
            if world.value(i).shape[1] != 1:
                yield f"{rule.name}: the split-off {i} varies along k"
                return
            after = world.value(
                ["Mul", ["Add", d[1], i], d[0]] if head == "shf" else [_SPLITS[str(head)], d[0], i]
            )
        else:
            assert head == "union"
            after = world.value(rest[0])
        if rule.safety is Safety.NEEDS_GATE:  # it may cancel, except on what the gate holds it to
            scale = np.where(is_gated(ROWS), scale, world.scale())
    if n != 1 and after.shape != before.shape:
        yield f"{rule.name}: one side varies along k, the other does not"
        return
    before, after = np.broadcast_arrays(before, after)
    for row in np.flatnonzero(~_agreeing(rule, world, before, after, finite, scale)):
        yield f"{rule.name}: {before[row]} became {after[row]} (k of {n}, row {row})"


def _agreeing(rule: Rule, world: _World, before: Array, after: Array, finite: Array, scale: Array) -> Array:
    if rule.safety is Safety.EXACT:
        return np.asarray(same_bits(before, after).all(1))
    with np.errstate(all="ignore"):
        if world.precise:
            near = np.abs(after - before) <= 1e-9 * np.maximum(np.abs(before), scale[:, None])
        else:
            exact = _in_float64(world)
            plain = np.abs(before.astype(np.float64) - exact)
            allowed = _SLACK * plain + _CHAIN * np.sqrt(max(world.n, 1)) * scale[:, None]
            near = np.abs(after.astype(np.float64) - exact) <= allowed
    spoiled = (np.isfinite(before) & ~np.isfinite(after)).any(1) & is_gated(world.rows)
    return (near.all(1) | ~finite) & ~spoiled


def _in_float64(world: _World) -> Array:
    """The original once more, from the same numbers."""
    wide = _World(world.premises, world.rng, world.rows, world.n, False)
    wide.drawn = {name: x.astype(np.float64) for name, x in world.drawn.items()}
    return wide.value("e")
