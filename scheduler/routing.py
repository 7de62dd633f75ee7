"""Which replica takes the next request. Pure and light: the gateway imports it, and gives it its own counts.

Leases say what a replica reported a moment ago; a gateway's own outstanding work is fresher. Both come in as
values; holding, retrying and waking are the gateway's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """One ready replica as a gateway sees it.

    `reported_*` come from the lease: sequences in the engine and waiting before it. How many of those this
    gateway had sent by then is unknown, so slots are counted by the larger of the two views. `outstanding_*`
    is this gateway's own: sequences sent and not ended, and their prompt plus allowed tokens.
    """

    replica_id: str
    max_sequences: int
    reported_running: int
    reported_waiting: int
    outstanding_sequences: int = 0
    outstanding_tokens: int = 0

    @property
    def free_slots(self) -> int:
        """Sequences it can take now; never negative."""
        taken = max(self.reported_running + self.reported_waiting, self.outstanding_sequences)
        return max(self.max_sequences - taken, 0)


def choose(
    candidates: Sequence[Candidate],
    *,
    sequences: int = 1,
    affinity: str | None = None,
    affinity_slack_tokens: int = 512,
    excluded: Collection[str] = (),
) -> str | None:
    """Replica id for a request of `sequences` sequences, or None when no replica has the slots.

    The fewest outstanding tokens win, then the most free slots, then the id. With `affinity` (a digest of the
    prompt's first block, say) equal prefixes meet on the same replica, as long as it is not more than
    `affinity_slack_tokens` behind the best. A request wider than a whole replica goes to an empty one.
    `excluded` holds replicas that already failed this request. Source: rendezvous hashing (Thaler and
    Ravishankar).
    """
    fitting = [c for c in candidates if c.replica_id not in excluded and _takes(c, sequences)]
    if not fitting:
        return None
    best = min(fitting, key=_load)
    if affinity is None:
        return best.replica_id
    limit = best.outstanding_tokens + affinity_slack_tokens
    near = [c for c in fitting if c.outstanding_tokens <= limit]
    return max(near, key=lambda c: (_weight(affinity, c.replica_id), c.replica_id)).replica_id


def total_free_slots(candidates: Sequence[Candidate]) -> int:
    """How many held sequences may be released now: by slots, never all to the first replica."""
    return sum(c.free_slots for c in candidates)


def _takes(candidate: Candidate, sequences: int) -> bool:
    return candidate.free_slots >= min(sequences, candidate.max_sequences)


def _load(candidate: Candidate) -> tuple[int, int, str]:
    return (candidate.outstanding_tokens, -candidate.free_slots, candidate.replica_id)


def _weight(affinity: str, replica_id: str) -> bytes:
    return hashlib.blake2b(f"{affinity}\0{replica_id}".encode(), digest_size=8).digest()
