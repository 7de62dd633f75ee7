"""What a check found: figures beside their bounds, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure. `bound` is empty where the figure is only told; `details` are printed below the table."""

    check: str
    figure: str
    measured: str
    bound: str = ""
    is_met: bool = True
    details: tuple[str, ...] = ()


def render(findings: Sequence[Finding]) -> str:
    """A Markdown table, then the details."""
    head = ("| check | figure | measured | bound | |", "| --- | --- | ---: | ---: | --- |")
    lines = (f"| {f.check} | {f.figure} | {f.measured} | {f.bound} | {_verdict(f)} |" for f in findings)
    details = (f"  {f.check}, {f.figure}: {detail}" for f in findings for detail in f.details)
    return "\n".join((*head, *lines, *details))


def unmet(findings: Sequence[Finding]) -> list[Finding]:
    """The findings outside their bounds."""
    return [finding for finding in findings if not finding.is_met]


def _verdict(finding: Finding) -> str:
    if not finding.is_met:
        return "MISSED"
    return "ok" if finding.bound else ""
