"""What a checkpoint may recommend: only what a request could ask for; no default breaks every answer."""

from __future__ import annotations

import pytest

from batching.prompt.profile import SamplingDefaults, read_defaults


def test_good_recommendations_are_taken() -> None:
    stated = {"temperature": 0.6, "top_p": 0.9, "top_k": 50, "min_p": 0.1, "repetition_penalty": 1.1}
    assert read_defaults(stated) == SamplingDefaults(0.6, 0.9, 50, 0.1, 1.1)


@pytest.mark.parametrize(
    "stated",
    [
        {"temperature": float("nan")},
        {"temperature": 10**400},
        {"temperature": -1},
        {"temperature": True},
        {"top_p": 0},
        {"top_p": 1.5},
        {"top_k": 10**400},
        {"top_k": 0.5},
        {"top_k": "50"},
        {"min_p": -0.1},
        {"repetition_penalty": 1e-320},
        {"repetition_penalty": float("inf")},
    ],
)
def test_recommendations_that_no_request_may_have_count_as_absent(stated: dict[str, object]) -> None:
    assert read_defaults(stated) == SamplingDefaults()
