"""One model as GGUF and as safetensors: the compiled programs agree to the last bit."""

from __future__ import annotations

import random

import pytest

from batching.prompt import PromptProfile
from loadtest.checks.forms import check_forms, check_tokens
from loadtest.checks.report import unmet
from loadtest.checks.texts import read_token_texts
from tests.support.tiny_checkpoints import VOCAB_SIZE


def random_prompts() -> list[list[int]]:
    rng = random.Random(1)
    return [[rng.randrange(VOCAB_SIZE) for _ in range(length)] for length in (1, 16, 50, 200)]


@pytest.mark.pitfall("G2")
@pytest.mark.parametrize("variant", ["gqa", "untied"])
def test_gguf_and_safetensors_give_the_same_bits(zoo, variant):
    with zoo.safetensors(variant, "bf16").program() as one, zoo.gguf(variant, "bf16").program() as other:
        findings = check_forms(one, other, random_prompts())
    assert unmet(findings) == []


def test_scaled_rotations_agree_as_far_as_the_rounded_divisors_of_gguf_allow(zoo):
    one, other = zoo.safetensors("rope_llama3", "bf16"), zoo.gguf("rope_llama3", "bf16")
    with one.program() as first, other.program() as second:
        findings = check_forms(first, second, random_prompts(), most=2e-3)
    assert unmet(findings) == []


def test_both_forms_have_the_token_ids_of_the_checkpoints_own_tokenizer(zoo):
    forms = {"safetensors": zoo.safetensors("gqa", "bf16"), "GGUF": zoo.gguf("gqa", "bf16")}
    profiles = {form: PromptProfile.load(made.tokenizer) for form, made in forms.items()}
    findings = check_tokens(forms["safetensors"].checkpoint, profiles, read_token_texts())
    assert unmet(findings) == []
