"""Tiny random models of transformers that are not served, BERT and ResNet: as graphs, and as an oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from transformers import BertConfig, BertModel, ResNetConfig, ResNetModel

from compiler.frontend.functional import gelu_tanh
from compiler.ir import DType, Graph, round_to_bf16, symbol
from compiler.zoo.bert import BertSpec, build_bert
from compiler.zoo.resnet import ResNetSpec, build_resnet

Arrays = Mapping[str, np.ndarray]
IMAGE = (3, 32, 32)
BATCH, LENGTH = 2, 17


@dataclass(frozen=True, slots=True)
class Encoder:
    """A model of transformers, its graph for weights in a dtype, and inputs for both."""

    model: torch.nn.Module
    graph: Callable[[DType], Graph]
    inputs: Arrays
    sizes: Mapping[str, int]

    def weights(self, graph: Graph) -> dict[str, np.ndarray]:
        """The model's tensors that the graph reads, in its dtypes."""
        state = {name: tensor.float().numpy() for name, tensor in self.model.state_dict().items()}
        return {
            name: round_to_bf16(state[name]) if node.dtype is DType.BF16 else state[name]
            for name, node in graph.weights.items()
        }

    def answers(self, dtype: torch.dtype = torch.float32, *, weights: torch.dtype | None = None) -> Arrays:
        """The oracle's outputs under the graph's names, computed in `dtype`, the weights rounded before."""
        state = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        model = self.model.to(weights or dtype).to(dtype)
        with torch.no_grad():
            found = {name: tensor.float().numpy() for name, tensor in self._call(model, dtype).items()}
        self.model.to(torch.float32).load_state_dict(state)
        return found

    def _call(self, model: torch.nn.Module, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        given = {name: torch.from_numpy(array) for name, array in self.inputs.items()}
        if "image" in given:
            out = model(given["image"].to(dtype))
            return {"features": out.last_hidden_state, "pooled": out.pooler_output[:, :, 0, 0]}
        ids, types, mask = (given[name].long() for name in ("ids", "types", "mask"))
        out = model(ids, attention_mask=mask, token_type_ids=types)
        return {"hidden": out.last_hidden_state, "pooled": out.pooler_output}


def _bert(activation: str) -> Encoder:
    """Two layers of width 64 over at most 96 positions; the second row of a batch ends in padding."""
    config = BertConfig(
        vocab_size=200,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=96,
        hidden_act=activation,
        attn_implementation="eager",
    )
    model = _disturbed(BertModel(config))
    spec = BertSpec(2, 4, activation=gelu_tanh) if activation == "gelu_new" else BertSpec(2, 4)
    rng = np.random.default_rng(0)
    mask = np.ones((BATCH, LENGTH), bool)
    mask[1, 11:] = False
    inputs = {
        "ids": rng.integers(0, 200, (BATCH, LENGTH)).astype(np.int32),
        "types": rng.integers(0, 2, (BATCH, LENGTH)).astype(np.int32),
        "mask": mask,
    }
    length = symbol("S", 1, 96)
    return Encoder(
        model,
        lambda dtype: build_bert(spec, _shapes(model), batch=BATCH, length=length, dtype=dtype),
        inputs,
        {"S": 16},
    )


def _resnet() -> Encoder:
    """A stage of one layer and one of two, of which the first halves the image."""
    config = ResNetConfig(
        num_channels=3, embedding_size=16, hidden_sizes=[16, 24], depths=[1, 2], layer_type="basic"
    )
    model = _disturbed(ResNetModel(config))
    image = np.random.default_rng(0).standard_normal((BATCH, *IMAGE)).astype(np.float32)
    spec = ResNetSpec(IMAGE, (1, 2))
    return Encoder(
        model,
        lambda dtype: build_resnet(spec, _shapes(model), batch=BATCH, dtype=dtype),
        {"image": image},
        {},
    )


ENCODERS: Mapping[str, Callable[[], Encoder]] = {
    "bert": lambda: _bert("gelu"),
    "bert_tanh": lambda: _bert("gelu_new"),
    "resnet": _resnet,
}


def _shapes(model: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    state = {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def _disturbed(model: torch.nn.Module) -> torch.nn.Module:
    """Every tensor moved at random, so that none may be left out; variances stay above 0."""
    generator = torch.Generator().manual_seed(0)
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            noise = torch.randn(tensor.shape, generator=generator) * 0.1
            tensor += noise.abs() if name.endswith("running_var") else noise
    return model.eval()
