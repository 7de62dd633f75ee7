"""Causal attention over a paged key-value cache, for tokens of many sequences in one step.

A block holds a fixed run of positions. Keys are stored with positions innermost and values with the head's
width innermost, so that both products read whole lines.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.frontend import Tensor
from compiler.frontend.functional import additive_mask, arange, soft_cap, softmax
from compiler.ir import DType
from compiler.nn.layers import Linear, RMSNorm
from compiler.nn.parameters import Parameters
from compiler.nn.rotary import Rotary


@dataclass(frozen=True, slots=True)
class PagedStep:
    """Where each token of a step stands: all i32.

    `positions` [T] within its sequence; `sequence` [T], the sequence's row of `block_tables` [B, M], whose
    unused entries name any block; `slots` [T], the position's address block * block_size + offset, or one
    outside the pool (negative, say) for padding, whose key and value are dropped.
    """

    positions: Tensor
    sequence: Tensor
    slots: Tensor
    block_tables: Tensor


@dataclass(frozen=True, slots=True)
class KeyValueCache:
    """keys [blocks, kv_heads, head_dim, block_size], values [blocks, kv_heads, block_size, head_dim]."""

    keys: Tensor
    values: Tensor

    @property
    def block_size(self) -> int:
        size = self.keys.shape[-1]
        assert isinstance(size, int), "a block has a fixed size"
        return size

    def write(self, keys: Tensor, values: Tensor, slots: Tensor) -> KeyValueCache:
        """The cache with keys and values [T, kv_heads, head_dim] at `slots`."""
        at = (slots // self.block_size, slots.fmod(self.block_size))
        return KeyValueCache(
            self.keys.permute(0, 3, 1, 2).scatter(at, keys).permute(0, 2, 3, 1),
            self.values.permute(0, 2, 1, 3).scatter(at, values).permute(0, 2, 1, 3),
        )

    def read(self, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """Keys [T, kv_heads, head_dim, M * block_size] and values [T, kv_heads, M * block_size, head_dim].

        Both in f32. `blocks` [T, M] names each token's blocks, in the order of their positions.
        """
        tokens, width = blocks.shape
        _, kv_heads, head_dim, block_size = self.keys.shape
        keys = self.keys[blocks,].permute(0, 2, 3, 1, 4)
        values = self.values[blocks,].permute(0, 2, 1, 3, 4)
        return (
            keys.reshape(tokens, kv_heads, head_dim, width * block_size).cast(DType.F32),
            values.reshape(tokens, kv_heads, width * block_size, head_dim).cast(DType.F32),
        )


@dataclass(frozen=True, slots=True)
class Scores:
    """What becomes of a query's products with keys. `scale` multiplies them (none: 1 / sqrt(head_dim)),
    `softcap` bounds them after that, and a token sees `window` positions, its own included (none: all).
    """

    scale: float | None = None
    softcap: float | None = None
    window: int | None = None


_PLAIN = Scores()


def attend(query: Tensor, cache: KeyValueCache, step: PagedStep, rule: Scores = _PLAIN) -> Tensor:
    """Each token's query over its sequence's positions up to its own.

    `query` [T, heads, head_dim], heads a multiple of the cache's; gives f32 [T, heads, head_dim].
    """
    tokens, heads, head_dim = query.shape
    _, kv_heads, _, block_size = cache.keys.shape
    assert isinstance(heads, int), "heads are fixed"
    assert isinstance(kv_heads, int), "heads are fixed"
    assert isinstance(head_dim, int), "a head has a fixed width"
    keys, values = cache.read(step.block_tables[step.sequence,])
    grouped = query.reshape(tokens, kv_heads, heads // kv_heads, head_dim)
    scale = head_dim**-0.5 if rule.scale is None else rule.scale
    scores = (grouped.unsqueeze(-1) * keys.unsqueeze(2)).sum(3) * scale
    if rule.softcap is not None:
        scores = soft_cap(scores, rule.softcap)

    key_position = arange(query.builder, step.block_tables.shape[1] * block_size)
    visible = key_position < (step.positions + 1).unsqueeze(1)
    if rule.window is not None:
        visible = visible & ((step.positions - rule.window).unsqueeze(1) < key_position)
    masked = scores + additive_mask(visible).reshape(tokens, 1, 1, key_position.shape[0])

    mixed = (softmax(masked, -1).unsqueeze(-1) * values.unsqueeze(2)).sum(3)
    return mixed.reshape(tokens, heads, head_dim)


@dataclass(frozen=True, slots=True)
class PagedAttention:
    """Projections around `attend`, with rotated queries and keys; norms, if any, are head by head."""

    query: Linear
    key: Linear
    value: Linear
    output: Linear
    heads: int
    kv_heads: int
    head_dim: int
    scores: Scores = _PLAIN
    query_norm: RMSNorm | None = None
    key_norm: RMSNorm | None = None

    @classmethod
    def of(
        cls, parameters: Parameters, heads: int, kv_heads: int, head_dim: int, scores: Scores = _PLAIN
    ) -> PagedAttention:
        query, key, value, output = (
            Linear.of(parameters.under(name)) for name in ("q_proj", "k_proj", "v_proj", "o_proj")
        )
        return cls(query, key, value, output, heads, kv_heads, head_dim, scores)

    def __call__(
        self, x: Tensor, rotary: Rotary, cache: KeyValueCache, step: PagedStep
    ) -> tuple[Tensor, KeyValueCache]:
        """[T, hidden] -> f32 [T, hidden], and the cache with this step's keys and values in it."""
        tokens = x.shape[0]
        query = self.query(x).reshape(tokens, self.heads, self.head_dim)
        key = self.key(x).reshape(tokens, self.kv_heads, self.head_dim)
        query = rotary(query if self.query_norm is None else self.query_norm(query))
        key = rotary(key if self.key_norm is None else self.key_norm(key))
        value = self.value(x).reshape(tokens, self.kv_heads, self.head_dim)
        written = cache.write(key, value, step.slots)
        mixed = attend(query, written, step, self.scores)
        return self.output(mixed.reshape(tokens, self.heads * self.head_dim)), written
