"""Each zoo variant, compiled, beside transformers on the same folder: logits of given ids, greedy answers."""

from __future__ import annotations

import random
from contextlib import closing

import pytest
import torch

from loadtest.checks.answers import check_greedy, check_logits
from loadtest.checks.peer import Peer
from loadtest.checks.report import unmet
from tests.support.tiny_checkpoints import TINY, VOCAB_SIZE

LENGTHS = (1, 2, 3, 5, 15, 16, 17, 31, 32, 33, 47, 48, 49, 60, 64, 65, 90, 120, 150, 180)
SHORT = LENGTHS[::3]


def random_prompts(lengths: tuple[int, ...]) -> list[list[int]]:
    rng = random.Random(sum(lengths))
    return [[rng.randrange(VOCAB_SIZE) for _ in range(length)] for length in lengths]


@pytest.mark.parametrize("variant", TINY)
def test_bf16_logits_are_as_near_to_f32_as_transformers_bf16(zoo, variant):
    made = zoo.safetensors(variant, "bf16")
    reference, eager = (Peer(made.checkpoint, dtype, threads=1) for dtype in (torch.float32, torch.bfloat16))
    with made.program() as program:
        findings = check_logits(program, reference, eager, random_prompts(LENGTHS))
    assert unmet(findings) == []


@pytest.mark.parametrize("variant", TINY)
def test_greedy_answers_in_f32_are_transformers_own(zoo, variant):
    made = zoo.safetensors(variant, "f32")
    with closing(made.engine()) as engine:

        def complete(prompts, counts):
            pairs = zip(prompts, counts, strict=True)
            requests = [engine.request(ids, max_tokens=count, stop_ids=()) for ids, count in pairs]
            return [answers[0].ids for answers in engine.complete(requests)]

        reference = Peer(made.checkpoint, torch.float32, threads=1)
        findings = check_greedy(complete, reference, random_prompts(SHORT))
    assert unmet(findings) == []
