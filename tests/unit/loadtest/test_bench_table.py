"""The comparison that `make bench` prints, as pure functions of rows."""

from __future__ import annotations

import pytest

from loadtest.bench.main import compare, host_time, render, replace_table, targets_missed

PEER = [
    {"engine": "hf", "start_to_first_token_s": 4.0},
    {
        "engine": "hf",
        "sequences": 1,
        "prompt": 128,
        "out": 64,
        "out_tok_s": 18,
        "prefill_tok_s": 1250,
        "decode_tok_s": 20,
    },
    {"engine": "hf", "sequences": 8, "prompt": 128, "out": 64, "out_tok_s": 120},
]
OURS = [
    {
        "engine": "candela",
        "sequences": 1,
        "prompt": 128,
        "out": 64,
        "prefill_tok_s": 2500,
        "decode_tok_s": 50,
        "host_ms_between_steps": 0.25,
    },
    {
        "engine": "candela",
        "sequences": 8,
        "prompt": 128,
        "out": 64,
        "out_tok_s": 150,
        "host_ms_between_steps": 0.5,
    },
]


def test_figures_of_both_runs_are_paired_by_workload() -> None:
    ratios = {(c.figure.sequences, c.figure.key): c.ratio for c in compare(PEER, OURS)}
    assert ratios == {(1, "decode_tok_s"): 2.5, (1, "prefill_tok_s"): 2.0, (8, "out_tok_s"): 1.25}


def test_a_missed_target_is_known() -> None:
    assert [c.is_met for c in compare(PEER, OURS)] == [True, True, False]


def test_a_missed_target_is_told() -> None:
    assert targets_missed(compare(PEER, OURS)) == ["8 x (128 in + 64 out): 1.25 < 1.5"]


def test_a_target_that_was_not_measured_is_missed() -> None:
    missed = targets_missed(compare(PEER[:2], OURS))
    assert missed == ["8 x (128 in + 64 out): not measured"]


def test_the_table_stands_between_its_marks() -> None:
    table = render(compare(PEER, OURS))
    text = replace_table("a\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nb\n", table)
    assert "| 1 sequence, 128 in, 64 out | decode tok/s | 20 | 50 | 2.5 |" in text
    assert "old" not in text
    assert text.startswith("a\n<!-- bench:begin -->\n|")
    assert text.endswith("|\n<!-- bench:end -->\nb\n")


def test_a_file_without_marks_is_an_error() -> None:
    with pytest.raises(ValueError, match="unpack"):
        replace_table("no marks", "table")


def test_host_time_names_each_workload() -> None:
    assert host_time(OURS).endswith("1 x (128 + 64): 0.25 ms; 8 x (128 + 64): 0.50 ms")
