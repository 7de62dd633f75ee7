"""BERT and ResNet, compiled, against transformers in the same dtype."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from compiler.graphs import compile_graph
from compiler.ir import DType
from compiler.options import CompileOptions
from tests.support.encoder_oracle import ENCODERS

MOST_ERROR = 1.5
"""Our bf16 error over that of PyTorch's bf16."""


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    return CompileOptions(budget="none", threads=2, cache_dir=tmp_path_factory.mktemp("cache"))


def run(encoder, dtype, options):
    graph = encoder.graph(dtype)
    with compile_graph(graph, encoder.weights(graph), options, sizes=encoder.sizes) as program:
        return {name: np.array(array) for name, array in program(encoder.inputs).items()}


@pytest.mark.parametrize("name", ENCODERS)
def test_f32_outputs_are_transformers_own(name, options):
    encoder = ENCODERS[name]()
    found, wanted = run(encoder, DType.F32, options), encoder.answers()
    assert found.keys() == wanted.keys()
    for output in wanted:
        np.testing.assert_allclose(found[output], wanted[output], rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("name", ENCODERS)
def test_bf16_outputs_are_as_near_to_f32_as_transformers_bf16(name, options):
    encoder = ENCODERS[name]()
    exact = encoder.answers(weights=torch.bfloat16)
    ours, eager = run(encoder, DType.BF16, options), encoder.answers(torch.bfloat16)
    for output in exact:
        errors = [np.sqrt(np.mean((x[output] - exact[output]) ** 2)) for x in (ours, eager)]
        assert errors[0] <= MOST_ERROR * errors[1]
