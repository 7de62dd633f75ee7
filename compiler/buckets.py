"""Buckets of step sizes: few, as kernels are right at every size; a bucket only selects schedules."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.dim import Symbol
from compiler.ir.graph import Graph
from compiler.search.candidates import Bucket

_EDGES = (("one", 1, 1), ("few", 8, 16), ("many", 128, 1 << 30))
"""Name, the size candidates are measured at, and the largest size of the bucket."""


def step_buckets(graph: Graph) -> tuple[Bucket, ...]:
    """Buckets that cover every T once: one token, a few sequences decoding, prefill."""
    sizes = {s.name: s for s in graph.symbols}
    tokens = sizes["T"]
    found: list[Bucket] = []
    low = tokens.low
    for name, measured, high in _EDGES:
        high = min(high, tokens.high)
        if low <= high:
            found.append(Bucket(name, low, high, _representative(sizes, min(max(measured, low), high))))
            low = high + 1
    return tuple(found)


def whole_bucket(graph: Graph, typical: Mapping[str, int]) -> Bucket:
    """One bucket for every size. Candidates are judged at `typical` sizes, or at the largest."""
    sizes = {s.name: s for s in graph.symbols}
    measured = {n: min(max(typical.get(n, s.high), s.low), s.high) for n, s in sizes.items()}
    tokens = sizes.get("T")
    return Bucket("all", tokens.low if tokens else 0, tokens.high if tokens else 0, measured)


def _representative(sizes: Mapping[str, Symbol], tokens: int) -> dict[str, int]:
    """Sizes of a typical step of `tokens`: one logit row a sequence, contexts of some 256 positions."""
    sequences = tokens if tokens <= 16 else 1
    wanted = {"T": tokens, "R": sequences, "B": sequences, "M": 16, "NB": 16 * sequences + 1}
    return {n: min(max(wanted.get(n, 1), s.low), s.high) for n, s in sizes.items()}
