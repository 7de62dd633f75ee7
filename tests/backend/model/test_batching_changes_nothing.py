"""A compiled model in the engine: neighbours, chunks, preemption and threads change no bit of an answer."""

from __future__ import annotations

import pytest

from batching.prompt import Tokenizer
from loadtest.checks.batching import Variation, check_batching
from loadtest.checks.report import unmet
from loadtest.checks.traffic import Sizes, draw_arrivals
from tests.support.tiny_checkpoints import VOCAB_SIZE

SIZES = Sizes(vocab_size=VOCAB_SIZE, longest_prompt=150, longest_answer=48, window_steps=30)
VARIATIONS = tuple(
    variation
    for threads, team in ((1, "1 thread"), (2, "2 threads"))
    for variation in (
        Variation(team, threads, 64, 160),
        Variation(f"{team}, 11 tokens a step", threads, 11, 160),
        Variation(f"{team}, 16 blocks", threads, 40, 16, preempts=True),
    )
)


@pytest.mark.pitfall("S8")
@pytest.mark.parametrize(
    ("variant", "dtype", "seed"),
    [
        ("gqa", "bf16", 1),
        ("gqa", "bf16", 2),
        ("odd_heads", "bf16", 3),
        ("biases", "f32", 4),
        ("gqa", "f32", 5),
    ],
)
def test_answers_together_are_those_alone(zoo, variant, dtype, seed):
    made = zoo.safetensors(variant, dtype)
    arrivals = draw_arrivals(seed, SIZES)
    findings = check_batching(made.program, Tokenizer.load(made.tokenizer), arrivals, VARIATIONS)
    assert unmet(findings) == []


@pytest.mark.pitfall("S8")
@pytest.mark.parametrize(
    ("name", "dtype", "seed"), [("gemma2", "bf16", 6), ("gpt2", "f32", 7), ("qwen2_window", "bf16", 8)]
)
def test_answers_of_other_families_together_are_those_alone(zoo, name, dtype, seed):
    made = zoo.family(name, dtype)
    arrivals = draw_arrivals(seed, SIZES)
    findings = check_batching(made.program, Tokenizer.load(made.tokenizer), arrivals, VARIATIONS)
    assert unmet(findings) == []
