"""What the gate refuses is kept for inspection: a folder with all that it takes to see why."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.codegen.cpp import print_kernel
from compiler.egraph.provenance import rules_behind
from compiler.lower.canonical import Canonical
from compiler.lower.terms import Term, topological
from compiler.search.candidates import Candidate, algebra_of
from compiler.search.gate import Trial

log = logging.getLogger(__name__)

_MOST_FOLDERS = 32
_MOST_BYTES = 16 << 20


class Kept:
    """A folder of refused candidates, one folder each; the oldest go when there are many."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._rules: dict[tuple[str, str], str] = {}

    def keep(
        self,
        definition: Canonical,
        candidate: Candidate,
        trial: Trial,
        written: npt.NDArray[Any],
        reason: str,
        dims: Sequence[str],
    ) -> None:
        """Write definition, schedule, source, inputs and error as files; a full disk is no error."""
        folder = self._root / candidate.name
        key = definition.key, candidate.term.key
        if key not in self._rules:
            self._rules[key] = ", ".join(rules_of(definition, candidate.term)) or "none: as it was written"
        rules = self._rules[key]
        inputs = {**trial.inputs, "written": written, "expected": trial.expected}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "definition.txt").write_text(_describe(definition, candidate))
            (folder / "schedule.json").write_text(json.dumps(asdict(candidate.schedule), indent=2) + "\n")
            (folder / "kernel.cpp").write_text(print_kernel(candidate.name, candidate.kernel, dims))
            (folder / "error.txt").write_text(f"{reason}\nrules: {rules}\nsizes: {dict(trial.dims)}\n")
            if sum(a.nbytes for a in inputs.values()) <= _MOST_BYTES:
                _save(folder / "inputs.npz", inputs)
            self._drop_old()
        except OSError as error:
            log.warning("what was refused cannot be kept: %s", error)
        log.info("refused %s: %s (rules: %s); kept in %s", candidate.name, reason, rules, folder)

    def _drop_old(self) -> None:
        folders = sorted((p for p in self._root.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime)
        for old in folders[: max(len(folders) - _MOST_FOLDERS, 0)]:
            shutil.rmtree(old, ignore_errors=True)


def _save(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    named: dict[str, Any] = dict(arrays)
    np.savez(path, **named)


def _describe(definition: Canonical, candidate: Candidate) -> str:
    buffers = [f"{n}: {b.dtype}{list(map(str, b.shape))} {b.role}" for n, b in definition.buffers.items()]
    axes = [f"{a} < {extent}" for a, extent in definition.extents.items()]
    return "\n".join(
        [
            f"definition {definition.key}, over {', '.join(definition.axes)}",
            *buffers,
            *axes,
            f"schedule: {candidate.schedule.describe()}",
            "as written:",
            *_lines(definition.term),
            "as computed:",
            *_lines(candidate.term),
            "",
        ]
    )


def _lines(root: Term) -> list[str]:
    """A term as one line for each shared part."""
    names: dict[Term, str] = {}
    lines = []
    for term in topological([root]):
        names[term] = f"t{len(names)}"
        what = " ".join([term.kind, *([str(term.attr)] if term.attr is not None else [])])
        lines.append(f"  {names[term]}: {term.dtype} = {what}({', '.join(names[a] for a in term.args)})")
    return lines


def rules_of(definition: Canonical, form: Term) -> tuple[str, ...]:
    """The rules without which a form of a definition is not found; none for the definition as it is written.

    Takes a saturation for each rule.
    """
    original, wanted = algebra_of(definition.term), algebra_of(form)
    return rules_behind((wanted,), original, extents=definition.extents)[wanted]
