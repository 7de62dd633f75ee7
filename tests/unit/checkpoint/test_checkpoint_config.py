"""Configs in every dialect against transformers' own reading, and what is refused by name."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from compiler.checkpoint import (
    CheckpointError,
    ModelConfig,
    ProblemCode,
    RopeKind,
    config_from_hf,
    expected_tensors,
    inverse_frequencies,
)
from compiler.checkpoint.strict_json import parse_object
from tests.support.tiny_checkpoints import LLAMA3_ROPE, TINY, tiny_config, tiny_tensors

BASE: dict[str, Any] = tiny_config(TINY["gqa"])


def config(**changes: Any) -> ModelConfig:
    return config_from_hf({**BASE, **changes})


def problems(**changes: Any) -> list[tuple[str, str | None]]:
    with pytest.raises(CheckpointError) as caught:
        config(**changes)
    return [(problem.code, problem.where) for problem in caught.value.problems]


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in BASE.items() if name not in names}


@pytest.mark.parametrize("variant", TINY)
def test_expected_tensors_are_those_of_the_model(variant: str) -> None:
    spec = TINY[variant]
    shapes = {name: array.shape for name, array in tiny_tensors(spec).items()}
    assert expected_tensors(config_from_hf(tiny_config(spec))) == shapes


@pytest.mark.parametrize("variant", [name for name in TINY if name != "mistral"])
def test_expected_tensors_are_those_of_transformers(variant: str) -> None:
    raw = tiny_config(TINY[variant])
    state = LlamaForCausalLM(LlamaConfig(**raw)).state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    tied = {"lm_head.weight"} if raw["tie_word_embeddings"] else set()
    assert expected_tensors(config_from_hf(raw)) == {n: s for n, s in shapes.items() if n not in tied}


ROPES = {
    "none": {"rope_theta": 1e6, "rope_scaling": None},
    "new form": {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}, "rope_theta": None},
    "linear, old name (S28)": {"rope_scaling": {"type": "linear", "factor": 3.0}},
    "linear, new name (S28)": {"rope_scaling": {"rope_type": "linear", "factor": 3.0}},
    "linear, new form (S28)": {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 2e4}},
    "llama3 (S28)": {"rope_scaling": LLAMA3_ROPE, "rope_theta": 5e5},
    "llama3, new form (S28)": {"rope_parameters": {**LLAMA3_ROPE, "rope_theta": 5e5}},
    "llama3 without its original length": {
        "rope_scaling": {k: v for k, v in LLAMA3_ROPE.items() if not k.startswith("original")}
    },
}


@pytest.mark.pitfall("S28")
@pytest.mark.parametrize("rope", ROPES.values(), ids=ROPES.keys())
def test_frequencies_are_those_of_transformers(rope: dict[str, Any]) -> None:
    raw = {
        name: value
        for name, value in {**without("rope_theta", "rope_scaling"), **rope}.items()
        if value is not None
    }
    ours = config_from_hf(raw)
    theirs = LlamaRotaryEmbedding(LlamaConfig(**raw)).inv_freq.numpy()
    assert np.allclose(inverse_frequencies(ours.rope, ours.head_dim), theirs, rtol=3e-7, atol=0)


@pytest.mark.pitfall("S28")
@pytest.mark.parametrize("kind", ["dynamic", "yarn", "longrope", "su", "mrope", ["linear"]])
def test_other_scalings_are_refused_by_name(kind: object) -> None:
    assert problems(rope_scaling={"rope_type": kind, "factor": 2.0}) == [
        (ProblemCode.UNSUPPORTED_CONFIG, "rope_scaling.rope_type")
    ]


@pytest.mark.parametrize("variant", TINY)
def test_sizes_are_those_that_transformers_reads(variant: str) -> None:
    raw = tiny_config(TINY[variant])
    theirs = (MistralConfig if variant == "mistral" else LlamaConfig)(**raw)
    ours = config_from_hf(raw)
    names = [
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "rms_norm_eps",
        "max_position_embeddings",
        "tie_word_embeddings",
        "bos_token_id",
    ]
    assert {name: getattr(ours, name) for name in names} == {name: getattr(theirs, name) for name in names}


def test_absent_fields_take_the_defaults_of_the_class() -> None:
    raw = without(
        "num_key_value_heads", "rms_norm_eps", "max_position_embeddings", "rope_theta", "bos_token_id"
    )
    ours, theirs = config_from_hf(raw), LlamaConfig(**raw)
    assert (ours.num_key_value_heads, ours.rms_norm_eps, ours.max_position_embeddings, ours.bos_token_id) == (
        theirs.num_key_value_heads,
        theirs.rms_norm_eps,
        theirs.max_position_embeddings,
        theirs.bos_token_id,
    )
    assert ours.rope.theta == theirs.rope_parameters["rope_theta"]


@pytest.mark.pitfall("S21")
def test_every_end_of_sequence_id_is_kept() -> None:
    assert config(eos_token_id=[128001, 128008, 128009]).eos_token_ids == (128001, 128008, 128009)


def test_the_new_name_of_the_dtype_is_read() -> None:
    assert config_from_hf({**without("torch_dtype"), "dtype": "float16"}).dtype == "float16"


@pytest.mark.parametrize(
    ("changes", "code", "where"),
    [
        ({"architectures": ["GPTJForCausalLM"]}, ProblemCode.UNKNOWN_ARCHITECTURE, "architectures"),
        ({"architectures": None, "model_type": "gptj"}, ProblemCode.UNKNOWN_ARCHITECTURE, "architectures"),
        ({"architectures": [{}]}, ProblemCode.UNKNOWN_ARCHITECTURE, "architectures"),
        ({"hidden_act": "relu"}, ProblemCode.UNSUPPORTED_CONFIG, "hidden_act"),
        (
            {"quantization_config": {"quant_method": "awq"}},
            ProblemCode.UNSUPPORTED_CONFIG,
            "quantization_config",
        ),
        ({"partial_rotary_factor": 0.5}, ProblemCode.UNSUPPORTED_CONFIG, "partial_rotary_factor"),
        ({"layer_types": ["sliding_attention"] * 2}, ProblemCode.UNSUPPORTED_CONFIG, "layer_types"),
        ({"head_dim": 33}, ProblemCode.UNSUPPORTED_CONFIG, "head_dim"),
        ({"num_attention_heads": 3}, ProblemCode.BAD_CONFIG, "hidden_size"),
        ({"num_key_value_heads": 3}, ProblemCode.BAD_CONFIG, "num_key_value_heads"),
        ({"num_hidden_layers": 1 << 40}, ProblemCode.BAD_CONFIG, "num_hidden_layers"),
        ({"hidden_size": "128"}, ProblemCode.BAD_CONFIG, "hidden_size"),
        ({"vocab_size": True}, ProblemCode.BAD_CONFIG, "vocab_size"),
        ({"rms_norm_eps": float("inf")}, ProblemCode.BAD_CONFIG, "rms_norm_eps"),
        ({"rope_theta": -1}, ProblemCode.BAD_CONFIG, "rope_theta"),
        ({"rope_scaling": {"type": "linear"}}, ProblemCode.BAD_CONFIG, "factor"),
        ({"tie_word_embeddings": "yes"}, ProblemCode.BAD_CONFIG, "tie_word_embeddings"),
        ({"eos_token_id": [1, -2]}, ProblemCode.BAD_CONFIG, "eos_token_id"),
    ],
)
def test_what_cannot_be_built_is_named(changes: dict[str, Any], code: ProblemCode, where: str) -> None:
    assert (code, where) in problems(**changes)


def test_all_faults_are_reported_at_once() -> None:
    found = problems(
        hidden_act="relu", vocab_size=0, rope_scaling={"type": "yarn"}, quantization_config={"x": 1}
    )
    assert {where for _, where in found} == {
        "hidden_act",
        "vocab_size",
        "rope_scaling.rope_type",
        "quantization_config",
    }


def test_every_layer_of_a_mistral_has_its_window() -> None:
    assert config(architectures=["MistralForCausalLM"], sliding_window=64).windows == (64, 64)


@pytest.mark.parametrize("window", [0, -1, "64", 2.5])
def test_a_window_that_is_none_is_named(window: object) -> None:
    assert problems(architectures=["MistralForCausalLM"], sliding_window=window) == [
        (ProblemCode.BAD_CONFIG, "sliding_window")
    ]


def test_a_window_that_covers_the_context_is_none() -> None:
    assert config(architectures=["MistralForCausalLM"], sliding_window=256).windows == ()


def test_an_absent_window_is_the_default_of_the_class() -> None:
    assert config(architectures=["MistralForCausalLM"], max_position_embeddings=8192).windows == (4096, 4096)


def test_llama3_keeps_its_numbers() -> None:
    rope = config(rope_scaling=LLAMA3_ROPE).rope
    assert (rope.kind, rope.factor, rope.original_max_position_embeddings) == (RopeKind.LLAMA3, 8.0, 64)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[1]",
        b'{"a":1,"a":2}',
        b'{"a":NaN}',
        b'{"a":' + b"9" * 5000 + b"}",
        b"\xff{}",
        b"[" * 100_000,
    ],
)
def test_json_that_is_not_an_honest_object_is_refused(text: bytes) -> None:
    with pytest.raises(CheckpointError) as caught:
        parse_object(text, "config.json", ProblemCode.BAD_CONFIG)
    assert caught.value.code == ProblemCode.BAD_CONFIG


def test_a_deep_value_does_not_break_the_message_about_it() -> None:
    deep = json.loads("[" * 200 + "]" * 200)
    assert problems(hidden_act=deep) == [(ProblemCode.UNSUPPORTED_CONFIG, "hidden_act")]
