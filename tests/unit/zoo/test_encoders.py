"""BERT and ResNet against transformers, run by the reference interpreter; convolutions against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from compiler.errors import ShapeError
from compiler.frontend import Trace
from compiler.ir import DType, evaluate
from compiler.nn import Conv2d, max_pool
from compiler.zoo.bert import BertSpec, build_bert
from tests.support.encoder_oracle import ENCODERS
from tests.support.tensor_oracle import ours


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_gives_what_transformers_gives(name):
    encoder = ENCODERS[name]()
    graph = encoder.graph(DType.F32)
    found = evaluate(graph, {**encoder.weights(graph), **encoder.inputs})
    wanted = encoder.answers()
    assert found.keys() == wanted.keys()
    for output in wanted:
        np.testing.assert_allclose(found[output], wanted[output], rtol=2e-5, atol=2e-5)


def test_padding_changes_no_other_position():
    encoder = ENCODERS["bert"]()
    graph = encoder.graph(DType.F32)
    weights = encoder.weights(graph)
    other = {**encoder.inputs, "ids": np.where(encoder.inputs["mask"], encoder.inputs["ids"], 7)}
    assert not np.array_equal(other["ids"], encoder.inputs["ids"])
    hidden = [evaluate(graph, {**weights, **given})["hidden"] for given in (encoder.inputs, other)]
    np.testing.assert_array_equal(*(h[encoder.inputs["mask"]] for h in hidden))


def test_a_bert_without_a_pooler_gives_its_hidden_states_alone():
    encoder = ENCODERS["bert"]()
    shapes = {name: node.shape for name, node in encoder.graph(DType.F32).weights.items()}
    body = {name: shape for name, shape in shapes.items() if not name.startswith("pooler.")}
    graph = build_bert(BertSpec(2, 4), body, batch=1, length=8, dtype=DType.F32)
    assert list(graph.outputs) == ["hidden"]


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (2, 5)])
def test_convolutions_are_those_of_pytorch(kernel, padding, stride):
    x, weight, bias = random(2, 3, 9, 8), random(4, 3, *kernel, seed=1), random(4, seed=2)
    found = ours(lambda x, w, b: Conv2d(w, b, stride, padding)(x), x, weight, bias)
    torch.testing.assert_close(found, F.conv2d(x, weight, bias, stride, padding), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("size", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (3, 1, 1)])
def test_the_largest_of_a_window_is_that_of_pytorch(size, stride, padding):
    x = random(2, 3, 9, 8) - 5
    found = ours(lambda x: max_pool(x, size, stride, padding), x)
    torch.testing.assert_close(found, F.max_pool2d(x, size, stride, padding), rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(4, 2, 3, 3), (4, 3, 10, 3)])
def test_a_kernel_that_does_not_fit_is_refused(shape):
    trace = Trace()
    x, weight = trace.input("x", (1, 3, 9, 8), DType.F32), trace.weight("w", shape, DType.F32)
    with pytest.raises(ShapeError):
        Conv2d(weight)(x)
