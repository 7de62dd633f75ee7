"""What searches found, kept by meaning: equal definitions are searched once, across layers and across models.

An entry names genomes, never code: what it chooses is formed, verified and printed anew, and must be the very
source that was gated. Whatever is torn, foreign, old or written by a fool is a miss, and never an error.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from compiler.codegen.cpp import print_kernel
from compiler.errors import CompilerError
from compiler.ir.dim import symbols
from compiler.lower.canonical import Canonical
from compiler.lower.schedule import LoopChoice, Schedule
from compiler.search.candidates import Bucket, Candidate, Nursery
from compiler.search.evolve import Genome
from compiler.search.tune import Record, Tuned

log = logging.getLogger(__name__)

_FORMAT = 1
_LARGEST_BYTES = 1 << 20


class SearchCache:
    """Entries in a folder, one file each; several processes may use it. `environment` is part of each key."""

    def __init__(self, folder: Path, environment: str) -> None:
        self._folder, self._environment = folder, environment

    def read(self, kind: str, identity: str, strength: int) -> Mapping[str, Any] | None:
        """What was found by at least so strong a search, or None."""
        path = self._path(kind, identity)
        try:
            if path.stat().st_size > _LARGEST_BYTES:
                return None
            outer = json.loads(path.read_bytes())
            body = outer["body"]
            if outer["format"] != _FORMAT or outer["key"] != path.stem or outer["sha256"] != _digest(body):
                raise ValueError("its digest, key or format does not fit")
            return body if int(body["strength"]) >= strength else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            log.warning("a search result is not used: %s: %s", path.name, error)
            return None

    def write(self, kind: str, identity: str, body: Mapping[str, Any]) -> None:
        """Keep an entry; a folder that cannot be written costs a search, and no more."""
        path = self._path(kind, identity)
        outer = {"format": _FORMAT, "key": path.stem, "sha256": _digest(body), "body": body}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".", delete=False) as file:
                json.dump(outer, file, sort_keys=True)
            os.replace(file.name, path)
        except OSError as error:
            log.warning("a search result is not kept: %s", error)

    def _path(self, kind: str, identity: str) -> Path:
        key = hashlib.sha256(f"{self._environment}|{kind}|{identity}".encode()).hexdigest()[:32]
        return self._folder / f"{key}.json"


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def identity_of(definition: Canonical, buckets: Sequence[Bucket]) -> str:
    """What a definition means and what it is tuned for: equal for equal ones of any model."""
    sizes = [*definition.extents.values(), *(n for b in definition.buffers.values() for n in b.shape)]
    bounds = sorted({(s.name, s.low, s.high) for n in sizes for s in symbols(n)})
    names = {name for name, _, _ in bounds}
    told = [(b.name, sorted((n, v) for n, v in b.representative.items() if n in names)) for b in buckets]
    return hashlib.sha256(repr((definition.key, bounds, told)).encode()).hexdigest()[:24]


def entry_of(
    tuned: Tuned, genomes: Mapping[str, Genome], seeds: int, dims: Sequence[str]
) -> Mapping[str, Any]:
    """What to keep of a result: the genome of each bucket's candidate, by the key of its form."""
    records = {r.candidate: r for r in tuned.records}
    return {
        "seeds": seeds,
        "chosen": {
            bucket: {
                "form": c.term.key,
                "schedule": asdict(genomes[c.name].schedule),
                "source": _source(c, dims),
                "error": records[c.name].error,
                "seconds": dict(records[c.name].measured_s),
            }
            for bucket, c in tuned.chosen.items()
        },
    }


def restore(
    entry: Mapping[str, Any],
    definition: Canonical,
    buckets: Sequence[Bucket],
    threads: int,
    dims: Sequence[str],
) -> Tuned | None:
    """The result that an entry names, formed anew; None where that is no longer the same."""
    try:
        for seeds in (0, min(int(entry["seeds"]), 64)):
            nursery = Nursery(definition, buckets, threads, seeds)
            found = {b.name: _formed(entry["chosen"][b.name], nursery, dims) for b in buckets}
            chosen = {b: c for b, c in found.items() if c is not None}
            if len(chosen) == len(buckets):
                return Tuned(definition, chosen, tuple(_records(definition, chosen, entry["chosen"])))
    except (ValueError, TypeError, KeyError, AttributeError, CompilerError) as error:
        log.warning("a search result is not used: %s: %s", definition.key, error)
    return None


def _formed(told: Mapping[str, Any], nursery: Nursery, dims: Sequence[str]) -> Candidate | None:
    keys = [term.key for term in nursery.forms]
    if told["form"] not in keys:
        return None
    loops = tuple(LoopChoice(str(c["axis"]), int(c["block"])) for c in told["schedule"]["loops"])
    schedule = Schedule(**{**told["schedule"], "loops": loops})
    candidate = nursery.form(Genome(keys.index(told["form"]), schedule))
    return candidate if candidate is not None and _source(candidate, dims) == told["source"] else None


def _records(
    definition: Canonical, chosen: Mapping[str, Candidate], told: Mapping[str, Mapping[str, Any]]
) -> list[Record]:
    found = {}
    for bucket, c in chosen.items():
        seconds = {str(b): float(s) for b, s in told[bucket]["seconds"].items()}
        error = float(told[bucket]["error"])
        found[c.name] = Record(definition.key, c.name, c.schedule.describe(), c.predicted, error, "", seconds)
    return list(found.values())


def _source(candidate: Candidate, dims: Sequence[str]) -> str:
    return hashlib.sha256(print_kernel(candidate.name, candidate.kernel, dims).encode()).hexdigest()
