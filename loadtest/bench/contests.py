"""What `models.py` measures: contests, each of them one computation, ours and torch.compile's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import (
    BertConfig,
    BertModel,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    PretrainedConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.models.resnet.modeling_resnet import ResNetBasicLayer

from compiler.frontend import Trace
from compiler.frontend.functional import gelu, linear
from compiler.graphs import compile_graph
from compiler.ir import DType, Graph, round_to_bf16
from compiler.nn import Parameters
from compiler.options import CompileOptions
from compiler.pipeline import compile_checkpoint
from compiler.runtime import StepBatch, load_program
from compiler.zoo.bert import BertSpec, build_bert
from compiler.zoo.resnet import BasicLayer

Floats = NDArray[np.float32]
_TOKENS = (1, 64)
_CONTEXT = 256
_VOCAB = 8192
_TORCH = {"f32": torch.float32, "bf16": torch.bfloat16}
_OURS = {"f32": DType.F32, "bf16": DType.BF16}


@dataclass(frozen=True, slots=True)
class Setup:
    """What all contests share. `folder` takes checkpoints and artifacts."""

    folder: Path
    budget: str
    dtype: str
    threads: int

    def options(self) -> CompileOptions:
        return CompileOptions(
            dtype=self.dtype,
            budget=self.budget,
            threads=self.threads,
            max_context=_CONTEXT,
            max_batched_tokens=max(_TOKENS),
            max_sequences=1,
        )


@dataclass(frozen=True, slots=True)
class Contest:
    """Both sides answer with the same floats. `close` lets go of what ours holds."""

    name: str
    peer: Callable[[], Floats]
    ours: Callable[[], Floats]
    close: Callable[[], None]

    def error(self) -> float:
        """The largest difference, relative to the largest value."""
        wanted = self.peer()
        return float(np.abs(self.ours() - wanted).max() / max(np.abs(wanted).max(), 1e-9))


def _decoder(
    kind: type[torch.nn.Module], config: PretrainedConfig, label: str, setup: Setup
) -> Iterator[Contest]:
    """A step of 1 and of 64 tokens with an empty cache, up to the last one's logits."""
    torch.manual_seed(0)
    torch.set_num_threads(setup.threads)
    model: Any = kind(config).eval().to(_TORCH[setup.dtype])
    checkpoint, artifact = setup.folder / label / "hf", setup.folder / label / "artifact"
    model.save_pretrained(checkpoint)
    compile_checkpoint(checkpoint, artifact, setup.options())
    for tokens in _TOKENS:
        torch.compiler.reset()
        compiled = torch.compile(model, dynamic=False)
        program = load_program(artifact, threads=setup.threads, kv_blocks=_CONTEXT // 16 + 1)
        ids = np.arange(tokens, dtype=np.int32) * 7919 % _VOCAB
        batch, given = _batch(ids), torch.from_numpy(ids).long()[None]
        yield Contest(
            f"{label}, {tokens} tokens" if tokens > 1 else f"{label}, 1 token",
            lambda compiled=compiled, given=given: _logits(compiled, given),  # type: ignore[misc]
            lambda program=program, batch=batch: program.step(batch)[0],  # type: ignore[misc]
            program.close,
        )


def _logits(model: Any, ids: torch.Tensor) -> Floats:
    with torch.inference_mode():
        found: Floats = model(ids, use_cache=False, logits_to_keep=1).logits[0, -1].float().numpy()
    return found


def _batch(ids: NDArray[np.int32]) -> StepBatch:
    count = len(ids)
    positions = np.arange(count, dtype=np.int32)
    blocks = np.arange(1, -(-count // 16) + 1, dtype=np.int32)[None]
    last = np.array([count - 1], np.int32)
    return StepBatch(ids, positions, np.zeros(count, np.int32), positions + 16, blocks, last)


def gpt2(setup: Setup) -> Iterator[Contest]:
    config = GPT2Config(
        vocab_size=_VOCAB,
        n_embd=768,
        n_layer=4,
        n_head=12,
        n_positions=_CONTEXT,
        bos_token_id=1,
        eos_token_id=2,
    )
    return _decoder(GPT2LMHeadModel, config, "GPT-2", setup)


def qwen3(setup: Setup) -> Iterator[Contest]:
    config = Qwen3Config(
        vocab_size=_VOCAB,
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=128,
        max_position_embeddings=_CONTEXT,
        tie_word_embeddings=True,
    )
    return _decoder(Qwen3ForCausalLM, config, "Qwen 3", setup)


def gemma2(setup: Setup) -> Iterator[Contest]:
    config = Gemma2Config(
        vocab_size=_VOCAB,
        hidden_size=576,
        intermediate_size=2304,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=128,
        query_pre_attn_scalar=128,
        max_position_embeddings=_CONTEXT,
        sliding_window=32,
        attn_implementation="eager",
    )
    return _decoder(Gemma2ForCausalLM, config, "Gemma 2", setup)


def mlp(setup: Setup) -> Iterator[Contest]:
    """1024 to 4096 and back, one row."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024))
    trace, shapes = Trace(), _shapes(layers)
    parameters = Parameters(trace, shapes, _OURS[setup.dtype])
    x = trace.input("x", (1, 1024), DType.F32)
    hidden = gelu(linear(x, parameters["0.weight"], parameters["0.bias"]))
    graph = trace.finish({"y": linear(hidden, parameters["2.weight"], parameters["2.bias"])})
    given = {"x": _normal(1, 1024)}
    yield _module("MLP 1024-4096-1024", layers, graph, given, setup, lambda m, t: m(t["x"]))


def resnet(setup: Setup) -> Iterator[Contest]:
    """A basic layer of 64 channels on 56 x 56."""
    torch.manual_seed(0)
    layer = ResNetBasicLayer(64, 64)
    trace = Trace()
    image = trace.input("image", (1, 64, 56, 56), DType.F32)
    graph = trace.finish({"y": BasicLayer.of(Parameters(trace, _shapes(layer), _OURS[setup.dtype]))(image)})
    given = {"image": _normal(1, 64, 56, 56)}
    yield _module("ResNet block, 64 x 56 x 56", layer, graph, given, setup, lambda m, t: m(t["image"]))


def bert(setup: Setup) -> Iterator[Contest]:
    """One layer of BERT base with its embeddings, 128 positions."""
    torch.manual_seed(0)
    config = BertConfig(vocab_size=_VOCAB, num_hidden_layers=1, max_position_embeddings=128)
    model = BertModel(config, add_pooling_layer=False)
    graph = build_bert(BertSpec(1, 12), _shapes(model), batch=1, length=128, dtype=_OURS[setup.dtype])
    given = {
        "ids": (np.arange(128, dtype=np.int32) * 7919 % _VOCAB)[None],
        "types": np.zeros((1, 128), np.int32),
        "mask": np.ones((1, 128), bool),
    }

    def call(module: Any, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        found: torch.Tensor = module(tensors["ids"], attention_mask=tensors["mask"]).last_hidden_state
        return found

    yield _module("BERT block, 128 positions", model, graph, given, setup, call)


def _module(
    name: str,
    module: torch.nn.Module,
    graph: Graph,
    given: Mapping[str, NDArray[Any]],
    setup: Setup,
    call: Callable[[Any, Mapping[str, torch.Tensor]], torch.Tensor],
) -> Contest:
    torch.set_num_threads(setup.threads)
    torch.compiler.reset()
    output = next(iter(graph.outputs))
    state = {key: tensor.float().numpy() for key, tensor in module.state_dict().items()}
    weights = {
        key: round_to_bf16(state[key]) if node.dtype is DType.BF16 else state[key]
        for key, node in graph.weights.items()
    }
    program = compile_graph(graph, weights, setup.options())
    compiled = torch.compile(module.eval().to(_TORCH[setup.dtype]), dynamic=False)
    tensors = {key: _tensor(array, setup) for key, array in given.items()}

    def peer() -> Floats:
        with torch.inference_mode():
            found: Floats = call(compiled, tensors).float().numpy()
        return found

    return Contest(name, peer, lambda: program(given)[output], program.close)


def _tensor(array: NDArray[Any], setup: Setup) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    if array.dtype == np.int32:
        return tensor.long()
    return tensor.to(_TORCH[setup.dtype]) if tensor.is_floating_point() else tensor.long()


def _shapes(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {k: tuple(v.shape) for k, v in module.state_dict().items() if v.is_floating_point()}


def _normal(*shape: int) -> Floats:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


CONTESTS: Mapping[str, Callable[[Setup], Iterator[Contest]]] = {
    "gpt2": gpt2,
    "qwen3": qwen3,
    "gemma2": gemma2,
    "mlp": mlp,
    "resnet": resnet,
    "bert": bert,
}
