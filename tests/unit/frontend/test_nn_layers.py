"""Layers against PyTorch: each alone, and attention through shuffled blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from compiler.frontend import Tensor, Trace
from compiler.ir import DType, evaluate
from compiler.nn import (
    Embedding,
    GatedMLP,
    KeyValueCache,
    Linear,
    PagedStep,
    Parameters,
    RMSNorm,
    Rotary,
    attend,
)

SHAPES = {
    "mlp.gate_proj.weight": (24, 16),
    "mlp.up_proj.weight": (24, 16),
    "mlp.up_proj.bias": (24,),
    "mlp.down_proj.weight": (16, 24),
    "norm.weight": (16,),
    "embed.weight": (10, 16),
}


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


VALUES = {name: random(*shape, seed=k) for k, (name, shape) in enumerate(SHAPES.items())}


def value_of(trace: Trace, result: Tensor, **inputs: torch.Tensor) -> torch.Tensor:
    values = {name: t.numpy() for name, t in {**VALUES, **inputs}.items()}
    return torch.from_numpy(evaluate(trace.finish({"y": result}), values)["y"])


@pytest.fixture
def trace() -> Trace:
    return Trace()


@pytest.fixture
def parameters(trace: Trace) -> Parameters:
    return Parameters(trace, SHAPES, DType.F32)


def test_a_linear_layer_has_the_bias_that_the_checkpoint_has(parameters):
    assert Linear.of(parameters.under("mlp").under("up_proj")).bias is not None
    assert Linear.of(parameters.under("mlp").under("gate_proj")).bias is None


def test_the_gated_mlp_is_swiglu(trace, parameters):
    out = GatedMLP.of(parameters.under("mlp"))(trace.input("x", (3, 16), DType.F32))
    x = random(3, 16, seed=9)
    gate, up, bias, down, *_ = VALUES.values()
    theirs = F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up, bias), down)
    torch.testing.assert_close(value_of(trace, out, x=x), theirs)


def test_rms_norm_and_embedding_agree_with_pytorch(trace, parameters):
    ids = torch.tensor([3, 9, 3], dtype=torch.int32)
    embedded = Embedding.of(parameters.under("embed"))(trace.input("ids", (3,), DType.I32))
    out = RMSNorm.of(parameters.under("norm"), 1e-5)(embedded)
    theirs = F.rms_norm(F.embedding(ids, VALUES["embed.weight"]), (16,), VALUES["norm.weight"], 1e-5)
    torch.testing.assert_close(value_of(trace, out, ids=ids), theirs)


def test_rotation_turns_each_pair_by_its_angle(trace):
    angles = random(5, 4, seed=3) * 10
    rotary = Rotary(trace.input("cos", (5, 4), DType.F32), trace.input("sin", (5, 4), DType.F32))
    out = rotary(trace.input("x", (5, 3, 8), DType.F32))
    x = random(5, 3, 8, seed=4)
    pairs = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones(5, 1, 4), angles[:, None])
    theirs = torch.cat((pairs.real, pairs.imag), -1)
    torch.testing.assert_close(value_of(trace, out, x=x, cos=angles.cos(), sin=angles.sin()), theirs)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (3, 1)])
def test_paged_attention_is_causal_attention_of_each_sequence(trace, heads, kv_heads):
    lengths, width, size, blocks = (9, 4), 8, 4, 7
    tokens = sum(lengths)
    tables = np.array([[5, 2, 6], [3, 0, 0]], dtype=np.int32)
    sequence = np.repeat([0, 1], lengths).astype(np.int32)
    positions = np.concatenate([np.arange(n) for n in lengths]).astype(np.int32)
    slots = tables[sequence, positions // size] * size + positions % size

    def vectors(name: str, count: int) -> Tensor:
        return trace.input(name, (tokens, count, width), DType.F32)

    cache = KeyValueCache(
        trace.input("keys", (blocks, kv_heads, width, size), DType.F32),
        trace.input("values", (blocks, kv_heads, size, width), DType.F32),
    )
    places = (trace.input(name, (tokens,), DType.I32) for name in ("positions", "sequence", "slots"))
    step = PagedStep(*places, trace.input("tables", (2, 3), DType.I32))
    out = attend(
        vectors("q", heads), cache.write(vectors("k", kv_heads), vectors("v", kv_heads), step.slots), step
    )

    q, k, v = (
        random(tokens, heads, width),
        random(tokens, kv_heads, width, seed=1),
        random(tokens, kv_heads, width),
    )
    ours = value_of(
        trace,
        out,
        q=q,
        k=k,
        v=v,
        keys=torch.zeros(blocks, kv_heads, width, size),
        values=torch.zeros(blocks, kv_heads, size, width),
        positions=torch.from_numpy(positions),
        sequence=torch.from_numpy(sequence),
        slots=torch.from_numpy(slots.astype(np.int32)),
        tables=torch.from_numpy(tables),
    )
    theirs = [
        F.scaled_dot_product_attention(
            *(t.transpose(0, 1)[None] for t in part), is_causal=True, enable_gqa=True
        )[0].transpose(0, 1)
        for part in zip(q.split(lengths), k.split(lengths), v.split(lengths), strict=True)
    ]
    torch.testing.assert_close(ours, torch.cat(theirs), rtol=1e-5, atol=1e-6)
