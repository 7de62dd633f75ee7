"""Choosing a replica: slots first, then outstanding tokens, then prefix affinity within a slack."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from scheduler.routing import Candidate, choose, total_free_slots


def candidate(name: str, **fields: int) -> Candidate:
    values = {"max_sequences": 4, "reported_running": 0, "reported_waiting": 0, **fields}
    return Candidate(replica_id=name, **values)


def test_fewest_outstanding_tokens_win() -> None:
    assert choose([candidate("a", outstanding_tokens=90), candidate("b", outstanding_tokens=10)]) == "b"


def test_equal_tokens_prefer_the_replica_with_more_free_slots() -> None:
    assert choose([candidate("a", reported_running=2), candidate("b", reported_running=1)]) == "b"


def test_a_full_replica_is_not_chosen() -> None:
    assert choose([candidate("a", reported_running=3, reported_waiting=1)]) is None


def test_own_outstanding_requests_count_before_the_lease_shows_them() -> None:
    assert choose([candidate("a", outstanding_sequences=4)]) is None


def test_own_and_reported_requests_are_not_counted_twice() -> None:
    assert candidate("a", reported_running=2, outstanding_sequences=2).free_slots == 2


def test_no_replica_gives_none() -> None:
    assert choose([]) is None


def test_a_replica_that_failed_the_request_is_skipped() -> None:
    assert choose([candidate("a"), candidate("b", outstanding_tokens=50)], excluded={"a"}) == "b"


def test_several_sequences_need_as_many_slots() -> None:
    assert choose([candidate("a", reported_running=2)], sequences=3) is None
    assert choose([candidate("a", reported_running=1)], sequences=3) == "a"


def test_a_request_wider_than_a_replica_goes_to_an_empty_one() -> None:
    assert choose([candidate("a", reported_running=1), candidate("b")], sequences=9) == "b"


def test_equal_prefixes_meet_on_one_replica() -> None:
    replicas = [candidate(name) for name in "abcdef"]
    assert choose(replicas, affinity="prefix") == choose(replicas[::-1], affinity="prefix")


def test_affinity_gives_way_when_its_replica_is_far_behind() -> None:
    replicas = [candidate(name) for name in "abc"]
    favourite = choose(replicas, affinity="prefix")
    busy = [candidate(n, outstanding_tokens=2000 if n == favourite else 0) for n in "abc"]
    assert choose(busy, affinity="prefix") != favourite


def test_free_slots_add_up_for_releasing_held_requests() -> None:
    assert total_free_slots([candidate("a", reported_running=1), candidate("b", reported_running=9)]) == 3


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 9999)), max_size=6))
def test_the_choice_always_has_a_free_slot(loads: list[tuple[int, int, int]]) -> None:
    replicas = [
        candidate(f"r{i}", reported_running=running, outstanding_sequences=own, outstanding_tokens=tokens)
        for i, (running, own, tokens) in enumerate(loads)
    ]
    free = {r.replica_id for r in replicas if r.free_slots > 0}
    chosen = choose(replicas, affinity="x")
    assert chosen in free if free else chosen is None


def test_importing_routing_pulls_in_nothing_heavy() -> None:
    program = (
        "import sys, scheduler.routing\n"
        "heavy = {'sqlalchemy', 'redis', 'httpx', 'celery', 'numpy', 'torch', 'psutil', 'pydantic'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
