"""Small programs for the compiler's tests, written in primitives through the frontend: no op is a layer.

`PROGRAMS` maps a name to a builder of its graph, which has one output `out`. Sizes: T rows and S columns that
are reduced (both symbolic), or those of a paged step. A rule of the e-graph names the program that fires it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from compiler.frontend import Tensor, Trace
from compiler.frontend import functional as f
from compiler.ir import DType, Graph, symbol

T = symbol("T", 1, 256)
S = symbol("S", 1, 512)
B, M, NB = symbol("B", 1, 8), symbol("M", 1, 16), symbol("NB", 1, 64)
HEADS, GROUPS, WIDTH, BLOCK = 2, 2, 24, 16
HIDDEN, COLUMNS = 40, 72
WINDOW = 5
_SCALE: float = WIDTH**-0.5

PROGRAMS: dict[str, Callable[[], Graph]] = {}


@dataclass(frozen=True, slots=True)
class Qkv:
    """Queries [T, heads, groups, width], keys [heads, width, S], values [heads, S, width], all f32."""

    query: Tensor
    keys: Tensor
    values: Tensor


def program(build: Callable[[Trace], Tensor]) -> Callable[[Trace], Tensor]:
    """List a builder under its own name."""

    def graph() -> Graph:
        trace = Trace()
        return trace.finish({"out": build(trace)})

    PROGRAMS[build.__name__] = graph
    return build


def table(trace: Trace, dtype: DType = DType.F32) -> Tensor:
    """Values [T, S], the last axis to be reduced."""
    return trace.input("x", (T, S), dtype)


# Exponentials over a running maximum


@program
def softmax(trace: Trace) -> Tensor:
    """The sum that normalises a row, of base-2 exponentials."""
    x = table(trace)
    return (x - x.max(1, keepdim=True)).exp2().sum(1)


@program
def scaled_softmax(trace: Trace) -> Tensor:
    """Weighted mean under natural exponentials of scaled differences."""
    x, v = table(trace), trace.input("v", (S,), DType.F32)
    e = ((x - x.max(1, keepdim=True)) * (f.LOG2_E * 0.3)).exp2()
    return (v * e).sum(1) * e.sum(1).recip()


@program
def log_of_sum(trace: Trace) -> Tensor:
    return f.log_sum_exp(table(trace), 1)


@program
def weighted_mean(trace: Trace) -> Tensor:
    """softmax(x) @ v: normalised before it is weighted."""
    x, v = table(trace), trace.input("v", (S, WIDTH), DType.F32)
    return (f.softmax(x, 1).unsqueeze(2) * v).sum(1)


def _qkv(trace: Trace, groups: int = 1) -> Qkv:
    shape = (T, HEADS, groups, WIDTH)
    return Qkv(
        trace.input("q", shape, DType.F32),
        trace.input("k", (HEADS, WIDTH, S), DType.F32),
        trace.input("v", (HEADS, S, WIDTH), DType.F32),
    )


def _scores(x: Qkv) -> Tensor:
    """[T, heads, groups, S]."""
    return (x.query.unsqueeze(-1) * x.keys.unsqueeze(1)).sum(3) * _SCALE


def _mixed(x: Qkv, scores: Tensor) -> Tensor:
    return (f.softmax(scores, -1).unsqueeze(-1) * x.values.unsqueeze(1)).sum(3)


def _positions(trace: Trace) -> tuple[Tensor, Tensor]:
    """Own position of each row [T, 1, 1, 1], and the positions of all keys [S]."""
    return trace.input("positions", (T,), DType.I32).reshape(T, 1, 1, 1), f.arange(trace.builder, S)


@program
def attention(trace: Trace) -> Tensor:
    x = _qkv(trace)
    return _mixed(x, _scores(x))


@program
def causal_attention(trace: Trace) -> Tensor:
    x, (own, keys) = _qkv(trace), _positions(trace)
    return _mixed(x, _scores(x) + f.additive_mask(keys < own + 1))


@program
def grouped_attention(trace: Trace) -> Tensor:
    """Several query heads for each head of keys and values, causal."""
    x, (own, keys) = _qkv(trace, GROUPS), _positions(trace)
    return _mixed(x, _scores(x) + f.additive_mask(keys < own + 1))


@program
def sliding_window_attention(trace: Trace) -> Tensor:
    x, (own, keys) = _qkv(trace), _positions(trace)
    visible = (keys < own + 1) & (own - WINDOW < keys)
    return _mixed(x, _scores(x) + f.additive_mask(visible))


@program
def window_of_two_masks(trace: Trace) -> Tensor:
    """A sliding window spelled as two masks, one for each side."""
    x, (own, keys) = _qkv(trace), _positions(trace)
    after, before = f.additive_mask(own - WINDOW < keys), f.additive_mask(keys < own + 1)
    return _mixed(x, _scores(x) + after + before)


@program
def soft_capped_attention(trace: Trace) -> Tensor:
    x, (own, keys) = _qkv(trace), _positions(trace)
    capped = f.tanh(_scores(x) * (1 / 8.0)) * 8.0
    return _mixed(x, capped + f.additive_mask(keys < own + 1))


@program
def alibi_attention(trace: Trace) -> Tensor:
    """A penalty that grows with distance, its slope given for each head."""
    x, (own, keys) = _qkv(trace), _positions(trace)
    slopes = trace.input("slopes", (HEADS,), DType.F32).reshape(1, HEADS, 1, 1)
    distance = (keys - own).cast(DType.F32)
    return _mixed(x, _scores(x) + distance * slopes + f.additive_mask(keys < own + 1))


@program
def padded_attention(trace: Trace) -> Tensor:
    """A mask read from memory: no order in it, so no bound can be derived."""
    x = _qkv(trace)
    mask = trace.input("mask", (T, S), DType.BOOL)
    return _mixed(x, _scores(x) + f.additive_mask(mask).reshape(T, 1, 1, S))


def _paged(trace: Trace, dtype: DType) -> Tensor:
    query = trace.input("q", (T, HEADS, GROUPS, WIDTH), DType.F32)
    keys = trace.input("k_cache", (NB, HEADS, WIDTH, BLOCK), dtype)
    values = trace.input("v_cache", (NB, HEADS, BLOCK, WIDTH), dtype)
    tables = trace.input("block_tables", (B, M), DType.I32)
    lengths = trace.input("positions", (T,), DType.I32)
    blocks = tables[trace.input("sequence", (T,), DType.I32),]
    k = keys[blocks,].permute(0, 2, 3, 1, 4).reshape(T, HEADS, WIDTH, M * BLOCK).cast(DType.F32)
    v = values[blocks,].permute(0, 2, 1, 3, 4).reshape(T, HEADS, M * BLOCK, WIDTH).cast(DType.F32)
    scores = (query.unsqueeze(-1) * k.unsqueeze(2)).sum(3) * _SCALE
    visible = f.arange(trace.builder, M * BLOCK) < (lengths + 1).unsqueeze(1)
    masked = scores + f.additive_mask(visible).reshape(T, 1, 1, M * BLOCK)
    return (f.softmax(masked, -1).unsqueeze(-1) * v.unsqueeze(2)).sum(3)


@program
def paged_attention(trace: Trace) -> Tensor:
    return _paged(trace, DType.F32)


@program
def paged_attention_bf16(trace: Trace) -> Tensor:
    return _paged(trace, DType.BF16)


# Normalisations and products with weights


def _rows(trace: Trace) -> Tensor:
    return trace.input("x", (T, HIDDEN), DType.F32)


@program
def rms_normed(trace: Trace) -> Tensor:
    return f.rms_norm(_rows(trace), trace.weight("g", (HIDDEN,), DType.F32), 1e-5)


@program
def product(trace: Trace) -> Tensor:
    return f.linear(_rows(trace), trace.weight("w", (COLUMNS, HIDDEN), DType.F32))


@program
def product_bf16(trace: Trace) -> Tensor:
    """bf16 weights, and a result rounded to bf16."""
    return f.linear(_rows(trace), trace.weight("w", (COLUMNS, HIDDEN), DType.BF16)).cast(DType.BF16)


@program
def batched_product(trace: Trace) -> Tensor:
    """[heads, T, width] x [heads, width, S], neither of them stored in that order."""
    x = trace.input("x", (T, HEADS, WIDTH), DType.F32).permute(1, 0, 2)
    y = trace.input("y", (S, WIDTH, HEADS), DType.F32).permute(2, 1, 0)
    return f.matmul(x, y)


@program
def rms_normed_product(trace: Trace) -> Tensor:
    normed = f.rms_norm(_rows(trace), trace.weight("g", (HIDDEN,), DType.F32), 1e-5)
    return f.linear(normed, trace.weight("w", (COLUMNS, HIDDEN), DType.BF16))


@program
def swiglu(trace: Trace) -> Tensor:
    x = _rows(trace)
    gate, up = (trace.weight(n, (COLUMNS, HIDDEN), DType.BF16) for n in ("gate", "up"))
    return f.silu(f.linear(x, gate)) * f.linear(x, up)


@program
def gated_mlp(trace: Trace) -> Tensor:
    """A product of what two products give: contractions inside a contraction."""
    x = _rows(trace)
    gate, up = (trace.weight(n, (COLUMNS, HIDDEN), DType.BF16) for n in ("gate", "up"))
    down = trace.weight("down", (HIDDEN, COLUMNS), DType.BF16)
    return f.linear(f.silu(f.linear(x, gate)) * f.linear(x, up), down)


@program
def row_variance(trace: Trace) -> Tensor:
    return f.variance(table(trace), 1)


@program
def layer_normed(trace: Trace) -> Tensor:
    gain, bias = (trace.weight(n, (HIDDEN,), DType.F32) for n in ("g", "b"))
    return f.layer_norm(_rows(trace), gain, bias, 1e-5)


@program
def probabilities(trace: Trace) -> Tensor:
    """Normalised exponentials themselves, one for each column."""
    return f.softmax(table(trace), 1)


@program
def centred_columns(trace: Trace) -> Tensor:
    gain = trace.input("gain", (S,), DType.F32)
    return f.layer_norm(table(trace), gain, gain * 0.5, 1e-5)


# Forms that one rule each is there for


@program
def normalised(trace: Trace) -> Tensor:
    """Factors that do not vary, on both sides, inside a product, around a reduction of the same axis."""
    x = table(trace)
    scale = ((x * x).sum(1, keepdim=True) + 1.0).sqrt().recip()
    y, c = trace.input("y", (S,), DType.F32), trace.input("c", (T,), DType.F32).unsqueeze(1)
    left, right = (scale * x) * y, y * (x * c)
    return left.sum(1) + right.sum(1) + (x * x * (y * c).recip()).sum(1)


@program
def quotient(trace: Trace) -> Tensor:
    """Divisions by what does not vary, and of and by products and exponentials of what does not."""
    x, c = table(trace), trace.input("c", (T,), DType.F32).unsqueeze(1)
    y = trace.input("y", (S,), DType.F32)
    square = x * x + 1.0
    plain = (x / square.sum(1, keepdim=True)).sum(1)
    e = (x - x.max(1, keepdim=True)).exp2()
    return (
        plain + (x * c / square).sum(1) + (x / (square * (c * c + 1.0))).sum(1) + (e / (y * y + 1.0)).sum(1)
    )


@program
def inverted(trace: Trace) -> Tensor:
    """Reciprocals of products: one of a plain factor, one of an exponential of a running maximum."""
    x, c = table(trace), trace.input("c", (T,), DType.F32).unsqueeze(1)
    e = (x - x.max(1, keepdim=True)).exp2()
    return (e.recip() * (x * 0.01).exp2()).sum(1) + ((x * x + 1.0) * (c * c + 1.0)).recip().sum(1)


@program
def two_exponents(trace: Trace) -> Tensor:
    """One difference, as an exponent by itself and scaled by what varies: only the first can be split."""
    x, y = table(trace), trace.input("y", (S,), DType.F32)
    shifted = x - x.max(1, keepdim=True)
    return shifted.exp2().sum(1) + (shifted * (y * y)).exp2().sum(1)


@program
def expected_difference(trace: Trace) -> Tensor:
    """A difference beside its own exponential: rescaling the one leaves the other behind."""
    x = table(trace)
    shifted = x - x.max(1, keepdim=True)
    return (shifted * shifted.exp2()).sum(1)


@program
def biased(trace: Trace) -> Tensor:
    """Terms that do not vary, on either side and inside a sum."""
    x, b = table(trace), trace.input("b", (T,), DType.F32).unsqueeze(1)
    y = trace.input("y", (S,), DType.F32)
    return (b + x).max(1) + ((x + b) + y).max(1) + (y + (b + x)).max(1)


@program
def shortfall(trace: Trace) -> Tensor:
    """Differences from a maximum, summed."""
    x = table(trace)
    return (x - x.max(1, keepdim=True)).sum(1)


@program
def centred_product(trace: Trace) -> Tensor:
    """Weighted squares of differences from a mean, which stands inside either factor."""
    x, y = table(trace), trace.input("y", (S,), DType.F32).sin() + 2.0
    centred = x - f.mean(x, 1, keepdim=True)
    return ((centred * y) * (y * centred)).sum(1)


def graph_of(name: str) -> Graph:
    return PROGRAMS[name]()


PAGED = ("paged_attention", "paged_attention_bf16")
ONE_PASS = (
    "softmax",
    "scaled_softmax",
    "log_of_sum",
    "weighted_mean",
    "attention",
    "causal_attention",
    "grouped_attention",
    "sliding_window_attention",
    "window_of_two_masks",
    "soft_capped_attention",
    "alibi_attention",
    "padded_attention",
    *PAGED,
)
"""Programs whose chosen form visits the reduced axis once."""


def sizes_of(name: str, rows: int, columns: int) -> Mapping[str, int]:
    """Sizes for a program: T rows over S columns, or over as many positions of a paged cache."""
    if name not in PAGED:
        return {"T": rows, "S": columns}
    blocks = math.ceil(columns / BLOCK)
    return {"T": rows, "B": 3, "M": blocks, "NB": 3 * blocks + 1}


def written_cache(dtype: DType) -> Graph:
    """Rows of a product, written to slots of a cache [NB, heads, BLOCK, width]; those outside are dropped."""
    trace = Trace()
    cache = trace.input("cache", (NB, HEADS, BLOCK, WIDTH), dtype)
    slots = trace.input("slots", (T,), DType.I32)
    weight = trace.weight("w", (HEADS * WIDTH, HIDDEN), DType.F32)
    rows = f.linear(_rows(trace), weight).reshape(T, HEADS, WIDTH)
    at = (slots // BLOCK, slots.fmod(BLOCK))
    written = cache.permute(0, 2, 1, 3).scatter(at, rows).permute(0, 2, 1, 3)
    return trace.finish({"cache": written}, {"cache": "cache"})
