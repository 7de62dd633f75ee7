"""The paged Llama step against transformers, run by the reference interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from compiler.checkpoint import ModelConfig, config_from_hf, expected_tensors
from compiler.errors import UnsupportedModel
from compiler.ir import DType, Graph, Op, bf16_to_f32, evaluate, parse_graph, print_graph, round_to_bf16
from compiler.zoo.llama import build_llama
from compiler.zoo.rope import rope_tables
from compiler.zoo.step import StepLimits
from tests.support.llama_oracle import oracle_logits, oracle_model
from tests.support.paged_steps import Chunk, PagedBatches, chunked_schedule, run_reference
from tests.support.tiny_checkpoints import TINY, VOCAB_SIZE, TinyLlama, tiny_config, tiny_tensors

LENGTHS = (37, 20, 5)
CONTEXT = 64


def sequences(lengths: tuple[int, ...] = LENGTHS, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, VOCAB_SIZE, n).tolist() for n in lengths]


def config_of(spec: TinyLlama) -> ModelConfig:
    return config_from_hf(tiny_config(spec))


def weights_of(spec: TinyLlama, dtype: str = "f32", seed: int = 1) -> dict[str, np.ndarray]:
    tensors = tiny_tensors(spec, seed)
    stored = {k: round_to_bf16(v) for k, v in tensors.items()} if dtype == "bf16" else tensors
    return {**stored, **rope_tables(config_of(spec), CONTEXT)}


def graph_of(spec: TinyLlama, dtype: str = "f32", block_size: int = 16) -> Graph:
    return build_llama(config_of(spec), dtype=dtype, max_context=CONTEXT, block_size=block_size)


def relative_error(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    scale = max(float(np.abs(t).max()) for t in theirs)
    return max(float(np.abs(o - t).max()) for o, t in zip(ours, theirs, strict=True)) / scale


@pytest.mark.pitfall("S24")
@pytest.mark.parametrize("variant", sorted(TINY))
def test_chunked_prefill_and_decode_give_transformers_logits(variant):
    spec = TINY[variant]
    batches = PagedBatches(sequences(), blocks=9, padding=3)
    ours = run_reference(graph_of(spec), weights_of(spec), batches, chunked_schedule(LENGTHS, 7, 4))
    theirs = oracle_logits(oracle_model(spec, tiny_tensors(spec, 1)), sequences())
    assert [o.shape for o in ours] == [t.shape for t in theirs]
    assert relative_error(ours, theirs) < 5e-6


@pytest.mark.parametrize("variant", ["gqa", "rope_llama3", "biases"])
def test_precise_evaluation_is_transformers_in_float64(variant):
    spec = TINY[variant]
    batches = PagedBatches(sequences(), blocks=9)
    steps = chunked_schedule(LENGTHS, 16, 1)
    ours = run_reference(graph_of(spec), weights_of(spec), batches, steps, precise=True)
    theirs = oracle_logits(oracle_model(spec, tiny_tensors(spec, 1), torch.float64), sequences())
    assert relative_error(ours, theirs) < 5e-7


@pytest.mark.pitfall("C10")
@pytest.mark.parametrize("variant", ["gqa", "plain"])
def test_the_bf16_step_errs_less_than_transformers_in_bf16(variant):
    spec = TINY[variant]
    tensors = {k: bf16_to_f32(round_to_bf16(v)) for k, v in tiny_tensors(spec, 1).items()}
    exact = oracle_logits(oracle_model(spec, tensors), sequences())
    eager = oracle_logits(oracle_model(spec, tensors, torch.bfloat16), sequences())
    batches = PagedBatches(sequences(), blocks=9)
    steps = chunked_schedule(LENGTHS, 7, 4)
    ours = run_reference(graph_of(spec, "bf16"), weights_of(spec, "bf16"), batches, steps)
    assert relative_error(ours, exact) < relative_error(eager, exact)


@pytest.mark.parametrize("block_size", [1, 8, 32])
def test_the_block_size_changes_nothing_but_addresses(block_size):
    spec = TINY["gqa"]
    batches = PagedBatches(sequences(), blocks=70, block_size=block_size, padding=2)
    ours = run_reference(
        graph_of(spec, block_size=block_size), weights_of(spec), batches, chunked_schedule(LENGTHS, 7, 4)
    )
    theirs = oracle_logits(oracle_model(spec, tiny_tensors(spec, 1)), sequences())
    assert relative_error(ours, theirs) < 5e-6


def test_rubbish_in_slots_not_yet_written_has_no_effect():
    spec = TINY["gqa"]
    batches, steps = PagedBatches(sequences(), blocks=9, padding=3), chunked_schedule(LENGTHS, 7, 4)
    clean = run_reference(graph_of(spec), weights_of(spec), batches, steps)
    dirty = run_reference(
        graph_of(spec), weights_of(spec), batches, steps, fill=lambda shape: np.full(shape, 1e4)
    )
    assert all(np.array_equal(c, d) for c, d in zip(clean, dirty, strict=True))


def test_padding_writes_no_slot():
    spec = TINY["gqa"]
    batches = PagedBatches([[1, 2, 3]], blocks=2, padding=4)
    graph = graph_of(spec)
    caches = {
        name: np.full((2, *node.shape[1:]), 7.0, np.float32)
        for name, node in graph.inputs.items()
        if "cache" in name
    }
    outputs = evaluate(graph, {**weights_of(spec), **caches, **batches.arrays([Chunk(0, 0, 3)])})
    block = int(batches.tables[0, 0])
    untouched = outputs["k_cache.0"][1 - block], outputs["v_cache.1"][1 - block]
    assert all((slots == 7.0).all() for slots in untouched)
    assert (outputs["k_cache.0"][block, :, :, 3:] == 7.0).all()
    assert (outputs["k_cache.0"][block, :, :, :3] != 7.0).all()


def test_logits_come_for_the_chosen_rows_only():
    spec = TINY["gqa"]
    batches = PagedBatches(sequences((6,)), blocks=2)
    graph, weights = graph_of(spec), weights_of(spec)
    shape = {"k": (2, 2, 32, 16), "v": (2, 2, 16, 32)}
    caches = {name: np.zeros(shape[name[0]], np.float32) for name in graph.aliases.values()}
    step = [Chunk(0, 0, 6)]
    every = evaluate(graph, {**weights, **caches, **batches.arrays(step)})["logits"]
    some = evaluate(graph, {**weights, **caches, **batches.arrays(step, [5, 2])})["logits"]
    none = evaluate(graph, {**weights, **caches, **batches.arrays(step, [])})["logits"]
    np.testing.assert_array_equal(some, every[[5, 2]])
    assert none.shape == (0, VOCAB_SIZE)


@pytest.mark.parametrize("variant", ["gqa", "untied", "biases"])
@pytest.mark.parametrize(("dtype", "storage"), [("f32", DType.F32), ("bf16", DType.BF16)])
def test_the_graphs_interface_is_what_the_runtime_expects(variant, dtype, storage):
    config, graph = config_of(TINY[variant]), graph_of(TINY[variant], dtype)
    named = {name: (tuple(map(str, n.shape)), n.dtype) for name, n in graph.inputs.items()}
    assert named == {
        **dict.fromkeys(("tokens", "positions", "sequence", "slots"), (("T",), DType.I32)),
        "block_tables": (("B", "M"), DType.I32),
        "logit_rows": (("R",), DType.I32),
        **{f"k_cache.{k}": (("NB", "2", "32", "16"), storage) for k in range(2)},
        **{f"v_cache.{k}": (("NB", "2", "16", "32"), storage) for k in range(2)},
    }
    weights = {name: n.shape for name, n in graph.weights.items()}
    assert weights == {**expected_tensors(config), "rope.cos": (64, 16), "rope.sin": (64, 16)}
    caches = [f"{kind}_cache.{k}" for k in range(2) for kind in "kv"]
    assert list(graph.outputs) == ["logits", *caches]
    assert graph.aliases == {name: name for name in caches}
    assert (str(graph.outputs["logits"].shape), graph.outputs["logits"].dtype) == ("(R, 512)", DType.F32)


def test_a_scatters_destination_is_read_by_nothing_else():
    graph = graph_of(TINY["gqa"])
    for node in graph.nodes:
        destinations = [n for n in node.inputs if n.op is Op.INPUT and "cache" in str(n.attr)]
        assert not destinations or node.op is Op.PERMUTE
    permuted = [n for n in graph.nodes if n.op is Op.PERMUTE and n.inputs[0].op is Op.INPUT]
    users = [user for user in graph.nodes for n in permuted if n in user.inputs]
    assert len(permuted) == len(users) == 4
    assert all(user.op is Op.SCATTER for user in users)


def test_the_step_reads_back_from_its_text():
    graph = graph_of(TINY["biases"], "bf16")
    text = print_graph(graph)
    assert print_graph(parse_graph(text)) == text


def test_nodes_grow_linearly_with_layers():
    sizes = [len(graph_of(replace(TINY["gqa"], layers=n)).nodes) for n in (1, 2, 3)]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0]


def test_limits_bound_the_sizes():
    limits = StepLimits(max_batched_tokens=48, max_sequences=4, max_blocks=99)
    graph = build_llama(config_of(TINY["gqa"]), dtype="f32", max_context=40, limits=limits)
    assert {s.name: (s.low, s.high) for s in graph.symbols} == {
        "T": (1, 48),
        "R": (0, 48),
        "B": (1, 4),
        "M": (1, 3),
        "NB": (1, 99),
    }


@pytest.mark.parametrize(
    ("change", "options"),
    [
        ({}, {"dtype": "f16"}),
        ({}, {"max_context": 0}),
        ({}, {"block_size": 0}),
        ({"num_key_value_heads": 3}, {}),
        ({"head_dim": 31}, {}),
    ],
)
def test_what_cannot_be_built_is_refused(change, options):
    config = replace(config_of(TINY["gqa"]), **change)
    with pytest.raises(UnsupportedModel):
        build_llama(config, **{"dtype": "f32", "max_context": 64, **options})
