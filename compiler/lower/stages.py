"""Stages: definitions that do not depend on each other run between the same two barriers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.lower.definitions import Definition


def stages(definitions: Sequence[Definition]) -> tuple[tuple[Definition, ...], ...]:
    """Group definitions, producers first: each stands in the first stage after all that it reads.

    A definition that writes over a buffer waits for the readers of what was there before, and for those who
    wrote over it earlier.
    """
    level: dict[str, int] = {}
    last_reader: dict[str, int] = {}
    last_writer: dict[str, int] = {}
    grouped: list[list[Definition]] = []
    for d in definitions:
        after = [level[b] + 1 for b in d.reads() if b in level]
        if d.aliases is not None:
            after.extend(seen[d.aliases] + 1 for seen in (last_reader, last_writer) if d.aliases in seen)
        at = max(after, default=0)
        if d.aliases is not None:
            last_writer[d.aliases] = at
        level[d.name] = at
        for b in d.reads():
            last_reader[b] = max(last_reader.get(b, 0), at)
        while len(grouped) <= at:
            grouped.append([])
        grouped[at].append(d)
    return tuple(tuple(group) for group in grouped)


def lifetimes(plan: Sequence[Sequence[Definition]]) -> Mapping[str, tuple[int, int]]:
    """First and last stage, inclusive, in which each definition's value must be in memory."""
    born: dict[str, int] = {}
    dies: dict[str, int] = {}
    for number, group in enumerate(plan):
        for d in group:
            born[d.name] = dies[d.name] = number
            for b in d.reads():
                if b in born:
                    dies[b] = number
    return {name: (born[name], dies[name]) for name in born}
