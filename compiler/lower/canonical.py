"""The canonical form of a definition: axes and buffers renamed in first-use order.

Equal layers of a model have equal canonical forms, so each is searched, printed and compiled once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from compiler.ir.dim import Size
from compiler.ir.dtype import DType
from compiler.lower import terms as t
from compiler.lower.definitions import Definition, Place
from compiler.lower.indexing import index_term, linear
from compiler.lower.terms import REDUCTIONS, Kind, Term


class Role(StrEnum):
    """Where a buffer's bytes come from; only weights can be packed at compile time."""

    WEIGHT = "weight"
    INPUT = "input"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Buffer:
    shape: tuple[Size, ...]
    dtype: DType
    role: Role


@dataclass(frozen=True, slots=True)
class Canonical:
    """A definition over canonical names. `buffers` describes each name; `key` is equal for equal
    computations.
    """

    axes: tuple[str, ...]
    extents: Mapping[str, Size]
    term: Term
    place: Place
    dtype: DType
    buffers: Mapping[str, Buffer]
    key: str

    def with_term(self, term: Term) -> Canonical:
        """The same definition computed by another form of its term; the key stays that of the definition."""
        return replace(self, term=term)


@dataclass(frozen=True, slots=True)
class Instance:
    """One use of a canonical definition: `arguments` maps its buffer names to the program's."""

    definition: Definition
    canonical: Canonical
    arguments: Mapping[str, str]


def canonicalize(definition: Definition, buffers: Mapping[str, Buffer]) -> Instance:
    """Rename a definition. `buffers` describes every buffer of the program by its program name."""
    axis_names = {a: f"o{i}" for i, a in enumerate(definition.axes)}
    buffer_names: dict[str, str] = {}
    roots = [definition.term, *definition.place.indices, *(c for c, _ in definition.place.limits)]
    for term in _in_order(roots):
        if term.kind is Kind.LOAD:
            buffer_names.setdefault(t.buffer_of(term), f"b{len(buffer_names)}")
        elif term.kind in REDUCTIONS:
            axis_names.setdefault(t.axis_of(term), f"k{len(axis_names) - len(definition.axes)}")
    buffer_names.setdefault(definition.place.buffer, "out")
    rename = _Renamer(axis_names, buffer_names)
    place = Place(
        buffer_names[definition.place.buffer],
        tuple(rename(i) for i in definition.place.indices),
        tuple((rename(c), limit) for c, limit in definition.place.limits),
    )
    described = {new: buffers[old] for old, new in buffer_names.items()}
    extents = {new: definition.extents[old] for old, new in axis_names.items()}
    term = rename(definition.term)
    key = _key(term, place, extents, described, definition.dtype)
    axes = tuple(axis_names[a] for a in definition.axes)
    canonical = Canonical(axes, extents, term, place, definition.dtype, described, key)
    return Instance(definition, canonical, {new: old for old, new in buffer_names.items()})


def _in_order(roots: list[Term]) -> list[Term]:
    """Terms in an order that depends on structure alone: depth first, arguments left to right."""
    return t.topological(roots)


class _Renamer:
    """Renames axes and buffers; integer terms are put back in normal form, whose order depends on names."""

    def __init__(self, axes: Mapping[str, str], buffers: Mapping[str, str]) -> None:
        self._axes, self._buffers = axes, buffers
        self._done: dict[Term, Term] = {}

    def __call__(self, root: Term) -> Term:
        for term in t.topological([root]):
            if term not in self._done:
                self._done[term] = self._one(term)
        return self._done[root]

    def _one(self, term: Term) -> Term:
        args = tuple(self._done[a] for a in term.args)
        if term.kind is Kind.IDX:
            return t.idx(self._axes[t.axis_of(term)])
        if term.kind is Kind.LOAD:
            return t.load(self._buffers[t.buffer_of(term)], args, term.dtype)
        if term.kind in REDUCTIONS:
            return t.make(term.kind, args, term.dtype, self._axes[t.axis_of(term)])
        if term.dtype is DType.I32 and term.kind in (Kind.ADD, Kind.MUL):
            return index_term(linear(t.make(term.kind, args, term.dtype)))
        return t.make(term.kind, args, term.dtype, term.attr)


def _key(
    term: Term, place: Place, extents: Mapping[str, Size], buffers: Mapping[str, Buffer], dtype: DType
) -> str:
    parts = [
        term.key,
        place.buffer,
        *(i.key for i in place.indices),
        *(f"{c.key}<{limit}" for c, limit in place.limits),
        str(dtype),
        *(f"{a}:{extents[a]}" for a in sorted(extents)),
        *(f"{b}:{i.shape}:{i.dtype}:{i.role}" for b, i in sorted(buffers.items())),
    ]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]
