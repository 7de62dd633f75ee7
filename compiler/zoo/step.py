"""What every family's step has in common: its sizes, its inputs, its caches and its outputs.

A step takes tokens of any mixture of sequences, prefill and decode alike, and gives logits for chosen rows.

Sizes: T tokens, R logit rows, B sequences, M block-table width, NB blocks. Inputs, i32: tokens[T],
positions[T], sequence[T] (row of block_tables), slots[T], block_tables[B, M], logit_rows[R] (indices into T);
per layer k_cache.{l} and v_cache.{l}. Outputs: logits [R, vocab] f32, and the caches, each over its input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from compiler.checkpoint import Activation, ModelConfig, expected_tensors
from compiler.checkpoint.expected import HEAD, embedding_name
from compiler.errors import UnsupportedModel
from compiler.frontend import Tensor, Trace
from compiler.frontend.functional import gelu, gelu_tanh, silu, soft_cap
from compiler.ir import DType, Graph, Shape, symbol
from compiler.nn import Embedding, KeyValueCache, Linear, PagedStep, Parameters, Rotary, Scores

COMPUTE_DTYPES = {"f32": DType.F32, "bf16": DType.BF16}
ACTIVATIONS: Mapping[Activation, Callable[[Tensor], Tensor]] = {
    Activation.SILU: silu,
    Activation.GELU: gelu,
    Activation.GELU_TANH: gelu_tanh,
}


@dataclass(frozen=True, slots=True)
class StepLimits:
    """The most that one step may hold: the upper bounds of the graph's sizes."""

    max_batched_tokens: int = 512
    max_sequences: int = 32
    max_blocks: int = 1 << 20


def key_cache_name(layer: int) -> str:
    """Input and output: [NB, kv_heads, head_dim, block_size]."""
    return f"k_cache.{layer}"


def value_cache_name(layer: int) -> str:
    """Input and output: [NB, kv_heads, block_size, head_dim]."""
    return f"v_cache.{layer}"


@dataclass(slots=True)
class StepTrace:
    """A step's graph while it is written: `begin`, the family's layers, `finish`."""

    config: ModelConfig
    trace: Trace
    parameters: Parameters
    tokens: Tensor
    step: PagedStep
    logit_rows: Tensor
    max_context: int
    _shapes: tuple[Shape, Shape]
    _caches: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def begin(
        cls, config: ModelConfig, dtype: str, max_context: int, block_size: int, limits: StepLimits | None
    ) -> StepTrace:
        """Declare the inputs. Weights and caches are stored in `dtype`; everything is computed in f32.

        Raises:
            UnsupportedModel: a dtype that is not "f32" or "bf16", or sizes that attention cannot be built
                from.
        """
        _check(config, dtype, max_context, block_size)
        limits = limits or StepLimits()
        trace = Trace()
        count = symbol("T", 1, limits.max_batched_tokens)
        rows = symbol("R", 0, limits.max_batched_tokens)
        blocks = symbol("NB", 1, limits.max_blocks)
        tables = (symbol("B", 1, limits.max_sequences), symbol("M", 1, -(-max_context // block_size)))
        tokens, positions, sequence, slots = (
            trace.input(name, (count,), DType.I32) for name in ("tokens", "positions", "sequence", "slots")
        )
        step = PagedStep(positions, sequence, slots, trace.input("block_tables", tables, DType.I32))
        logit_rows = trace.input("logit_rows", (rows,), DType.I32)
        heads, width = config.num_key_value_heads, config.head_dim
        shapes: tuple[Shape, Shape] = ((blocks, heads, width, block_size), (blocks, heads, block_size, width))
        parameters = Parameters(trace, expected_tensors(config), COMPUTE_DTYPES[dtype])
        return cls(config, trace, parameters, tokens, step, logit_rows, max_context, shapes)

    def embedded(self) -> Tensor:
        """The tokens' embeddings, f32 [T, hidden]."""
        return Embedding(self.parameters[embedding_name(self.config)])(self.tokens)

    def rotary(self) -> Rotary:
        """The rotation of each token's position."""
        return Rotary.at(self.trace, self.step.positions, self.config.head_dim, self.max_context)

    def scores(self, layer: int) -> Scores:
        """How `layer` scores keys. A window that no context fills is none."""
        window = self.config.window(layer)
        is_felt = window is not None and window < self.max_context
        return Scores(self.config.query_scale, self.config.attention_softcap, window if is_felt else None)

    def cache(self, layer: int) -> KeyValueCache:
        """The cache of `layer` as the step finds it."""
        keys, values = self._shapes
        dtype = self.parameters.dtype
        return KeyValueCache(
            self.trace.input(key_cache_name(layer), keys, dtype),
            self.trace.input(value_cache_name(layer), values, dtype),
        )

    def keep(self, layer: int, cache: KeyValueCache) -> None:
        """Leave `cache` as that of `layer`."""
        self._caches |= {key_cache_name(layer): cache.keys, value_cache_name(layer): cache.values}

    def finish(self, hidden: Tensor, norm: Callable[[Tensor], Tensor]) -> Graph:
        """The graph: logits of the chosen rows of `hidden` [T, hidden], normed, through the head."""
        config = self.config
        head = Linear(self.parameters[embedding_name(config) if config.tie_word_embeddings else HEAD])
        logits = head(norm(hidden[self.logit_rows,]))
        if config.final_softcap is not None:
            logits = soft_cap(logits, config.final_softcap)
        return self.trace.finish({"logits": logits, **self._caches}, {name: name for name in self._caches})


def _check(config: ModelConfig, dtype: str, max_context: int, block_size: int) -> None:
    if dtype not in COMPUTE_DTYPES:
        raise UnsupportedModel(f"dtype {dtype!r} is not built; {' and '.join(COMPUTE_DTYPES)} are")
    if config.num_attention_heads % config.num_key_value_heads or config.head_dim % 2:
        raise UnsupportedModel(
            f"{config.num_attention_heads} heads of width {config.head_dim} over "
            f"{config.num_key_value_heads} key-value heads: heads must be a multiple, the width even"
        )
    if max_context < 1 or block_size < 1:
        raise UnsupportedModel(f"max_context {max_context} and block_size {block_size} must be positive")
