"""What a hunt for one definition found: the choice for each bucket, and what became of every candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compiler.errors import CompilerError
from compiler.lower.canonical import Canonical
from compiler.measure.bench import Bench
from compiler.measure.ground import BenchGround, Plan
from compiler.search.candidates import Bucket, Candidate
from compiler.search.contest import Rounds
from compiler.search.hunt import Hunt


class NoCandidate(CompilerError):
    """Every candidate of a definition failed the gate: a fault of the compiler, never of the model."""

    code = "no_candidate_passed"


@dataclass(frozen=True, slots=True)
class Record:
    """What became of one candidate, for the report. Seconds are medians, on the incumbent's scale."""

    definition: str
    candidate: str
    schedule: str
    predicted_s: Mapping[str, float]
    error: float
    refusal: str = ""
    measured_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tuned:
    """The candidate chosen for each bucket, and what was tried."""

    definition: Canonical
    chosen: Mapping[str, Candidate]
    records: tuple[Record, ...]

    def seconds(self, bucket: str) -> float:
        """What the chosen candidate takes in a bucket: as timed, or as predicted where it was not."""
        name = self.chosen[bucket].name
        record = next(r for r in self.records if r.candidate == name)
        return record.measured_s.get(bucket, record.predicted_s[bucket])

    def is_timed(self) -> bool:
        """Whether the clock has spoken in every bucket."""
        return all(self.chosen[b].name in _timed(self.records, b) for b in self.chosen)


def _timed(records: Sequence[Record], bucket: str) -> set[str]:
    return {r.candidate for r in records if bucket in r.measured_s}


def tuned_by(definition: Canonical, hunt: Hunt[Candidate]) -> Tuned:
    """The outcome of a hunt so far.

    Raises:
        NoCandidate: nobody passed the gate.
    """
    if not hunt.passed:
        reasons = [v.reason for v in hunt.verdicts.values()]
        raise NoCandidate(f"{definition.key}: {'; '.join(reasons[:3])}")
    records = []
    for name, c in hunt.entrants.items():
        verdict = hunt.verdicts[name]
        times = {b: m[name] for b, m in hunt.measured.items() if name in m}
        schedule = c.schedule.describe()
        records.append(
            Record(definition.key, name, schedule, c.predicted, verdict.error, verdict.reason, times)
        )
    return Tuned(definition, hunt.chosen(), tuple(records))


def tune(
    definition: Canonical,
    found: Sequence[Candidate],
    buckets: Sequence[Bucket],
    shared_object: Path,
    bench: Bench,
    plan: Plan,
    rounds: Rounds | None = None,
) -> Tuned:
    """Gate, time and choose among `found` alone, whose kernels `shared_object` holds.

    Raises:
        NoCandidate: none of them computes the definition.
    """
    ground = BenchGround(definition, buckets, bench, plan, lambda c: shared_object)
    hunt: Hunt[Candidate] = Hunt([b.name for b in buckets], ground, rounds)
    hunt.enter(found)
    ground.leave()
    return tuned_by(definition, hunt)
