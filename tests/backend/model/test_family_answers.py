"""Each family beside Llama, compiled, beside transformers on the same folder: logits, and greedy answers."""

from __future__ import annotations

import random
from contextlib import closing

import pytest
import torch

from loadtest.checks.answers import check_greedy, check_logits
from loadtest.checks.peer import Peer
from loadtest.checks.report import unmet
from tests.support.tiny_checkpoints import VOCAB_SIZE
from tests.support.tiny_families import FAMILIES

LENGTHS = (1, 2, 5, 16, 23, 24, 25, 31, 47, 49, 64, 90, 150, 180)
"""Around the window of 24 positions, blocks of 16 and steps of 64 tokens."""
SHORT = LENGTHS[::3]


def random_prompts(lengths: tuple[int, ...]) -> list[list[int]]:
    rng = random.Random(sum(lengths))
    return [[rng.randrange(VOCAB_SIZE) for _ in range(length)] for length in lengths]


@pytest.mark.parametrize("name", FAMILIES)
def test_bf16_logits_are_as_near_to_f32_as_transformers_bf16(zoo, name):
    made = zoo.family(name, "bf16")
    reference, eager = (Peer(made.checkpoint, dtype, threads=1) for dtype in (torch.float32, torch.bfloat16))
    with made.program() as program:
        findings = check_logits(program, reference, eager, random_prompts(LENGTHS))
    assert unmet(findings) == []


@pytest.mark.parametrize("name", FAMILIES)
def test_greedy_answers_in_f32_are_transformers_own(zoo, name):
    made = zoo.family(name, "f32")
    with closing(made.engine()) as engine:

        def complete(prompts, counts):
            pairs = zip(prompts, counts, strict=True)
            requests = [engine.request(ids, max_tokens=count, stop_ids=()) for ids, count in pairs]
            return [answers[0].ids for answers in engine.complete(requests)]

        reference = Peer(made.checkpoint, torch.float32, threads=1)
        findings = check_greedy(complete, reference, random_prompts(SHORT))
    assert unmet(findings) == []
