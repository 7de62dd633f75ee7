"""One model as GGUF and as safetensors: the compiled programs agree to the last bit."""

from __future__ import annotations

import random

import pytest

from batching.prompt import PromptProfile
from loadtest.checks.forms import check_forms, check_tokens
from loadtest.checks.report import unmet
from loadtest.checks.texts import read_token_texts
from tests.support.tiny_checkpoints import VOCAB_SIZE


@pytest.mark.parametrize("variant", ["gqa", "untied", "rope_llama3"])
def test_gguf_and_safetensors_give_the_same_bits(zoo, variant):
    rng = random.Random(1)
    prompts = [[rng.randrange(VOCAB_SIZE) for _ in range(length)] for length in (1, 16, 50, 200)]
    with zoo.safetensors(variant, "bf16").program() as one, zoo.gguf(variant, "bf16").program() as other:
        findings = check_forms(one, other, prompts)
    assert unmet(findings) == []


def test_both_forms_have_the_token_ids_of_the_checkpoints_own_tokenizer(zoo):
    forms = {"safetensors": zoo.safetensors("gqa", "bf16"), "GGUF": zoo.gguf("gqa", "bf16")}
    profiles = {form: PromptProfile.load(made.tokenizer) for form, made in forms.items()}
    findings = check_tokens(forms["safetensors"].checkpoint, profiles, read_token_texts())
    assert unmet(findings) == []
