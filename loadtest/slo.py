"""Whether a run held its service level objectives: read from YAML, judged from figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml


@dataclass(frozen=True, slots=True)
class Objectives:
    """`p95_ms` by metric name; `least_done` keeps an idle run from passing."""

    fail_ratio: float
    least_done: int
    p95_ms: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Figures:
    done: int
    failed: int
    p95_ms: Mapping[str, float]


def read_objectives(path: Path) -> Objectives:
    raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    return Objectives(float(raw["fail_ratio"]), int(raw["least_done"]), dict(raw["p95"]))


def breaches(objectives: Objectives, figures: Figures) -> tuple[str, ...]:
    """Each objective that was missed, in words; empty is good."""
    found = []
    if figures.done < objectives.least_done:
        found.append(f"{figures.done} requests were answered, {objectives.least_done} are needed to judge")
    ratio = figures.failed / max(figures.done + figures.failed, 1)
    if ratio > objectives.fail_ratio:
        found.append(f"{ratio:.2%} of the requests failed, {objectives.fail_ratio:.2%} may")
    for name, limit_ms in objectives.p95_ms.items():
        measured_ms = figures.p95_ms.get(name)
        if measured_ms is not None and measured_ms > limit_ms:
            found.append(f"p95 of {name} is {measured_ms:.0f} ms, {limit_ms:.0f} ms may be")
    return tuple(found)
