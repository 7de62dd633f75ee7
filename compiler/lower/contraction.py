"""Contractions: a sum of a product whose factors fall into two groups that share only the summed axis.

This is the whole of matmul detection: it finds weight products, scores, weighted values, and operands that
are
themselves expressions (normalised, rotated, dequantised) alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from compiler.ir.dim import Size
from compiler.ir.dtype import DType
from compiler.lower import terms as t
from compiler.lower.indexing import flatten, linear
from compiler.lower.recombine import recombined
from compiler.lower.terms import Kind, Term, axis_of


@dataclass(frozen=True, slots=True)
class Contraction:
    """`sum_k a * b`: `a` has at most the tile axis `m`, `b` has the tile axis `n`."""

    m: str | None
    n: str
    k: str
    a: Term
    b: Term


def contraction(term: Term, tile_axes: Sequence[str]) -> Contraction | None:
    """How `term`, a sum, is a matrix product over tiles; None where it is not one.

    `tile_axes` are the axes of the result's tile; at most two, each owned by one group of factors.
    """
    if term.kind is Kind.MAX or term.dtype is not DType.F32:
        return None
    k = axis_of(term)
    groups, lone = _groups(list(t.products(term.args[0])), frozenset(tile_axes))
    if not groups or len(groups) > 2 or any(len(axes) != 1 for axes, _ in groups):
        return None
    groups.sort(key=lambda g: tile_axes.index(next(iter(g[0]))))
    if len(groups) == 1:
        (axes, factors), m = groups[0], None
        if not lone:
            return None
        a, b = _product(lone), _product(factors)
    else:
        (left, first), (axes, second) = groups
        m = next(iter(left))
        a, b = _product([*first, *lone]), _product(second)
    if k not in a.free or k not in b.free:
        return None
    return Contraction(m, next(iter(axes)), k, a, b)


def _groups(
    factors: list[Term], out: frozenset[str]
) -> tuple[list[tuple[frozenset[str], list[Term]]], list[Term]]:
    """Factors joined while they share an output axis; those with none are returned apart."""
    groups: list[tuple[frozenset[str], list[Term]]] = []
    lone: list[Term] = []
    for factor in factors:
        own = factor.free & out
        if not own:
            lone.append(factor)
            continue
        hit = [g for g in groups if g[0] & own]
        axes = own.union(*(g[0] for g in hit))
        joined = [f for g in hit for f in g[1]] + [factor]
        groups = [g for g in groups if not g[0] & own] + [(frozenset(axes), joined)]
    return groups, lone


def _product(factors: list[Term]) -> Term:
    return reduce(t.mul, factors)


def strides_in_tile(
    load: Term, shape: tuple[Size, ...], axes: Sequence[str], aligned: Mapping[str, int]
) -> dict[str, int] | None:
    """Element strides of a load along tile axes, or None where it is not affine in them inside a tile.

    `aligned` gives the block of axes whose tiles start at multiples of it: `a // n` is constant in such a
    tile and
    `a % n` moves by one, when the block divides n.
    """
    flat = flat_index(load, shape)
    strides = dict.fromkeys(axes, 0)
    for atom, c in flat.items():
        for axis in axes:
            if axis not in atom.free:
                continue
            step = _step(atom, axis, aligned)
            if step is None or not isinstance(c, int):
                return None
            strides[axis] += step * c
    return strides


def flat_index(load: Term, shape: tuple[Size, ...]) -> Mapping[Term, Size]:
    """Coefficients of a load's row-major position; the constant is left out."""
    return recombined(linear(flatten(load.args, shape))).coefficients


def _step(atom: Term, axis: str, aligned: Mapping[str, int]) -> int | None:
    if atom.kind is Kind.IDX:
        return 1
    inner, divisor = (atom.args[0], atom.args[1].attr) if len(atom.args) == 2 else (atom, None)
    is_plain = inner.kind is Kind.IDX and axis_of(inner) == axis
    if is_plain and isinstance(divisor, int) and axis in aligned and divisor % aligned[axis] == 0:
        if atom.kind is Kind.FLOOR_DIV:
            return 0
        if atom.kind is Kind.FLOOR_MOD:
            return 1
    if atom.kind is Kind.LOAD and all(_index_is_constant(a, axis, aligned) for a in atom.args):
        return 0
    return None


def _index_is_constant(term: Term, axis: str, aligned: Mapping[str, int]) -> bool:
    """Whether an index does not move along `axis` inside a tile."""
    return all(axis not in x.free or _step(x, axis, aligned) == 0 for x in linear(term).coefficients)
