"""The paged step of every family beside Llama against transformers, run by the reference interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from compiler.checkpoint import ModelConfig, config_from_hf, expected_tensors
from compiler.errors import UnsupportedModel
from compiler.ir import Graph, bf16_to_f32, parse_graph, print_graph, round_to_bf16
from compiler.zoo import build_step, step_tables
from tests.support.family_oracle import family_config, family_model
from tests.support.llama_oracle import oracle_logits
from tests.support.paged_steps import PagedBatches, chunked_schedule, run_reference
from tests.support.tiny_checkpoints import VOCAB_SIZE
from tests.support.tiny_families import FAMILIES, WINDOW, family_tensors

LENGTHS = (61, 30, 5)
CONTEXT = 64


def sequences() -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, VOCAB_SIZE, n).tolist() for n in LENGTHS]


def config_of(name: str) -> ModelConfig:
    return config_from_hf(FAMILIES[name])


def graph_of(name: str, dtype: str = "f32") -> Graph:
    return build_step(config_of(name), dtype=dtype, max_context=CONTEXT)


def run(name: str, dtype: str = "f32", *, chunk: int = 7) -> list[np.ndarray]:
    tensors = family_tensors(name)
    stored = {k: round_to_bf16(v) for k, v in tensors.items()} if dtype == "bf16" else tensors
    weights = {**stored, **step_tables(config_of(name), CONTEXT)}
    batches = PagedBatches(sequences(), blocks=9, padding=3)
    return run_reference(graph_of(name, dtype), weights, batches, chunked_schedule(LENGTHS, chunk, 4))


def relative_error(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    scale = max(float(np.abs(t).max()) for t in theirs)
    return max(float(np.abs(o - t).max()) for o, t in zip(ours, theirs, strict=True)) / scale


@pytest.mark.parametrize("name", FAMILIES)
def test_expected_tensors_are_those_of_transformers(name):
    state = family_model(name, family_tensors(name)).state_dict()
    shapes = {key: tuple(tensor.shape) for key, tensor in state.items()}
    tied = {"lm_head.weight"} if family_config(name).tie_word_embeddings else set()
    assert expected_tensors(config_of(name)) == {n: s for n, s in shapes.items() if n not in tied}


@pytest.mark.parametrize("name", FAMILIES)
def test_chunked_prefill_and_decode_give_transformers_logits(name):
    theirs = oracle_logits(family_model(name, family_tensors(name)), sequences())
    assert max(LENGTHS) > 2 * WINDOW
    assert relative_error(run(name), theirs) < 5e-6


@pytest.mark.parametrize("name", ["gpt2", "qwen3", "gemma2", "qwen2_window"])
def test_the_bf16_step_errs_less_than_transformers_in_bf16(name):
    tensors = {k: bf16_to_f32(round_to_bf16(v)) for k, v in family_tensors(name).items()}
    exact = oracle_logits(family_model(name, tensors), sequences())
    eager = oracle_logits(family_model(name, tensors, torch.bfloat16), sequences())
    assert relative_error(run(name, "bf16"), exact) < relative_error(eager, exact)


@pytest.mark.parametrize("name", [name for name in FAMILIES if config_of(name).windows])
def test_a_window_is_felt(name):
    """Without it the logits are others, so that what agrees with transformers has one."""
    config = replace(config_of(name), windows=())
    graph = build_step(config, dtype="f32", max_context=CONTEXT)
    weights = {**family_tensors(name), **step_tables(config, CONTEXT)}
    batches = PagedBatches(sequences(), blocks=9)
    whole = run_reference(graph, weights, batches, chunked_schedule(LENGTHS, 16, 1))
    assert relative_error(run(name), whole) > 1e-3


def test_a_window_that_no_context_fills_leaves_the_graph_as_it_is():
    config = config_of("mistral_window")
    graphs = [
        build_step(replace(config, windows=windows), dtype="f32", max_context=WINDOW)
        for windows in (config.windows, ())
    ]
    assert print_graph(graphs[0]) == print_graph(graphs[1])


@pytest.mark.parametrize("name", FAMILIES)
def test_the_step_reads_back_from_its_text(name):
    text = print_graph(graph_of(name, "bf16"))
    assert print_graph(parse_graph(text)) == text


def test_more_context_than_learned_positions_is_refused():
    with pytest.raises(UnsupportedModel, match="256 positions"):
        build_step(config_of("gpt2"), dtype="f32", max_context=257)
