"""The NumPy sampler: logits to token ids. Owns what each parameter means; the oracle of a compiled sampler.

Rows are independent: a row's token depends on its own logits, parameters, seed and position, never on its
neighbours. The order within a row: bias, repetition, frequency and presence penalties, masks, temperature,
min-p, top-k, top-p (each renormalises what the one before it left), draw. Equal logits rank by lowest id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ids = NDArray[np.intp]

GREEDY_BELOW = 1e-5
"""A temperature under this picks the likeliest token."""
LOWEST_LOGPROB = -9999.0
"""Stands for the logarithm of zero, which JSON cannot hold."""

_NEAR_PEAK = np.float32(2.0**-6)
_PEAK_KEY = 0x3F80  # upper 16 bits of the float 1.0
_RUN = 256


@dataclass(frozen=True, slots=True)
class History:
    """The tokens so far: repetition looks at prompt and output, frequency and presence at the output."""

    prompt_ids: NDArray[np.int32]
    output_ids: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class SamplingRow:
    """How to pick the token of one logits row.

    `seed`, `stream` and `position` key the draw and nothing else does. The history is what penalties look at;
    absent, none is applied. `allowed` is a bit a token, least significant first, in 32-bit words. `logprobs`
    asks for that many alternatives beside the chosen token's own log-probability; None asks for neither.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int = 0
    stream: int = 0
    position: int = 0
    history: History | None = None
    suppressed: tuple[int, ...] = ()
    allowed: NDArray[np.uint32] | None = None
    logprobs: int | None = None

    @property
    def is_greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @property
    def has_adjustment(self) -> bool:
        """Whether the logits change before the pick."""
        return bool(
            self.logit_bias or self.suppressed or self.allowed is not None or self.history is not None
        )


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A token's natural-log probability under the unmodified logits, and the likeliest `(id, logprob)`."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Samples:
    """One pick a row; `is_valid` is false where logits held NaN or infinity or the masks left no token."""

    ids: Ids
    is_valid: NDArray[np.bool_]
    logprobs: tuple[TokenLogprobs | None, ...]


def sample(logits: Floats, rows: Sequence[SamplingRow]) -> Samples:
    """Pick one token for each of the R rows of `logits` [R, V]; `logits` is left as it is."""
    assert len(logits) == len(rows), "one SamplingRow for each row of logits"
    if all(row.is_greedy and not row.has_adjustment for row in rows):
        ids = logits.argmax(axis=1)
        is_valid = np.isfinite(logits[np.arange(len(rows)), ids])
    else:
        scratch = np.empty(logits.shape[1], dtype=np.float32)
        picks = [_pick(logits[i], row, scratch) for i, row in enumerate(rows)]
        is_valid = np.array([p is not None for p in picks], dtype=np.bool_)
        ids = np.array([p or 0 for p in picks], dtype=np.intp)
    logprobs = tuple(
        None
        if row.logprobs is None or not is_valid[i]
        else token_logprobs(logits[i], int(ids[i]), row.logprobs)
        for i, row in enumerate(rows)
    )
    return Samples(ids, is_valid, logprobs)


def token_logprobs(logits: Floats, token_id: int, count: int) -> TokenLogprobs:
    """Log-probability of `token_id` under `logits` [V], and the `count` likeliest tokens, best first."""
    peak = logits.max()
    norm = float(peak) + float(np.log(np.exp(logits - peak).sum(dtype=np.float64)))
    own = max(float(logits[token_id]) - norm, LOWEST_LOGPROB)
    if count == 0:
        return TokenLogprobs(own)
    ids, values = _best(logits, min(count, len(logits)))
    top = zip(ids.tolist(), values.tolist(), strict=True)
    return TokenLogprobs(own, tuple((i, max(v - norm, LOWEST_LOGPROB)) for i, v in top))


def uniform(seed: int, stream: int, position: int) -> float:
    """A number in [0, 1) from the counter (position, stream) under the key `seed`; 53 random bits."""
    words = philox4x32(
        (position & _M32, stream & _M32, 0, 0),
        (seed & _M32, (seed >> 32) & _M32),
    )
    return ((words[0] >> 5) * 67108864 + (words[1] >> 6)) * 2.0**-53


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Ten rounds of Philox-4x32. Source: Salmon et al., "Parallel random numbers" (SC 2011)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a = 0xD2511F53 * c0
        b = 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & _M32, (a >> 32) ^ c3 ^ k1, a & _M32
        k0 = (k0 + 0x9E3779B9) & _M32
        k1 = (k1 + 0xBB67AE85) & _M32
    return c0, c1, c2, c3


_M32 = 0xFFFFFFFF


def _pick(logits: Floats, row: SamplingRow, scratch: Floats) -> int | None:
    """The row's token, or None when there is none to pick. `scratch` [V] is overwritten."""
    peak = logits.max()
    if not np.isfinite(peak):
        return None
    values = logits
    if row.has_adjustment:
        values = _adjusted(logits, row, scratch)
        peak = values.max()
        if not np.isfinite(peak):
            return None
    if row.is_greedy:
        return int(values.argmax())
    weights = np.subtract(values, peak, out=scratch)
    with np.errstate(over="ignore"):
        if row.temperature != 1.0:
            weights *= np.float32(1.0 / row.temperature)
        np.exp(weights, out=weights)
    draw = uniform(row.seed, row.stream, row.position)
    is_cut = row.min_p > 0.0 or row.top_p < 1.0 or 0 < row.top_k < len(weights)
    if not is_cut:
        return _draw_from_all(weights, draw)
    ids, kept = _kept(weights, row)
    return int(ids[_inverse(np.cumsum(kept, dtype=np.float64), draw)])


def _adjusted(logits: Floats, row: SamplingRow, out: Floats) -> Floats:
    """`logits` after bias, penalties and masks, written to `out`."""
    np.copyto(out, logits)
    if row.logit_bias:
        ids, bias = zip(*row.logit_bias, strict=True)
        np.add.at(out, list(ids), np.array(bias, dtype=np.float32))
    if row.history is not None:
        _penalise(out, row, row.history)
    if row.suppressed:
        out[list(row.suppressed)] = -np.inf
    if row.allowed is not None:
        bits = np.unpackbits(row.allowed.view(np.uint8), bitorder="little")
        assert len(bits) >= len(out), "the mask covers the vocabulary"
        out[bits[: len(out)] == 0] = -np.inf
    return out


def _penalise(out: Floats, row: SamplingRow, history: History) -> None:
    """Repetition divides a positive logit and multiplies a negative one; the other two subtract."""
    if row.repetition_penalty != 1.0:
        seen = np.unique(np.concatenate((history.prompt_ids, history.output_ids)))
        value, factor = out[seen], np.float32(row.repetition_penalty)
        out[seen] = np.where(value > 0, value / factor, value * factor)
    made, counts = np.unique(history.output_ids, return_counts=True)
    out[made] -= (row.frequency_penalty * counts + row.presence_penalty).astype(np.float32)


def _kept(weights: Floats, row: SamplingRow) -> tuple[Ids, Floats]:
    """Ids and weights that survive min-p, top-k and top-p, in an order fixed by the row. The peak is 1."""
    has_top_k = 0 < row.top_k < len(weights)
    if not has_top_k and row.min_p <= 0.0:
        ids = _nucleus(weights, row.top_p)
        return ids, weights[ids]
    ids = _best(weights, row.top_k)[0] if has_top_k else np.flatnonzero(weights >= np.float32(row.min_p))
    ids = ids[weights[ids] >= np.float32(row.min_p)]
    if row.top_p < 1.0:
        ids = ids[_nucleus(weights[ids], row.top_p)]
    return ids, weights[ids]


def _nucleus(weights: Floats, share: float) -> Ids:
    """Indices of the fewest largest weights that hold `share` of the mass; lowest index first among equals.

    Nothing but the neighbourhood of the edge is sorted. A peaked distribution has its edge among the weights
    near the peak. A flat one is binned by the upper 16 bits of each weight, which order as the weights do.
    """
    wanted = share * float(
        np.einsum("i->", weights)
    )  # a sum twice as fast as `sum`, exact enough for an edge
    (edge,) = np.nonzero(weights >= _NEAR_PEAK)
    sure, before = edge[:0], 0.0
    if float(weights[edge].sum()) < wanted:
        keys = _PEAK_KEY - (weights.view(np.uint32) >> 16).astype(np.intp)
        sums = np.cumsum(np.bincount(keys, weights=weights))
        key = min(int(np.searchsorted(sums, wanted)), len(sums) - 1)
        sure, edge = np.flatnonzero(keys < key), np.flatnonzero(keys == key)
        before = float(sums[key - 1]) if key else 0.0
    edge, at_edge = _ranked(edge, weights)
    size = int(np.searchsorted(before + np.cumsum(at_edge, dtype=np.float64), wanted)) + 1
    return np.concatenate((sure, edge[:size]))


def _best(values: Floats, count: int) -> tuple[Ids, Floats]:
    """Ids and values of the `count` largest, best first, lowest id first among equals."""
    floor = np.partition(values, len(values) - count)[len(values) - count]
    ids, best = _ranked(np.flatnonzero(values >= floor), values)
    return ids[:count], best[:count]


def _ranked(ids: Ids, values: Floats) -> tuple[Ids, Floats]:
    """`ids` (ascending) and their values, largest value first, lowest id first among equals."""
    chosen = values[ids]
    order = np.argsort(-chosen, kind="stable")
    return ids[order], chosen[order]


def _draw_from_all(weights: Floats, draw: float) -> int:
    """The id at `draw` of the mass in id order: first the run of ids that holds it, then the id."""
    whole = len(weights) // _RUN * _RUN
    runs = weights[:whole].reshape(-1, _RUN).sum(axis=1, dtype=np.float64)
    sums = np.cumsum(np.append(runs, weights[whole:].sum(dtype=np.float64)))
    run = _inverse(sums, draw)
    inside = np.cumsum(weights[run * _RUN : (run + 1) * _RUN], dtype=np.float64)
    before = float(sums[run - 1]) if run else 0.0
    return run * _RUN + _inverse(inside, (draw * float(sums[-1]) - before) / float(inside[-1]))


def _inverse(sums: NDArray[np.float64], draw: float) -> int:
    """First index whose running sum passes `draw` of the total; it never has weight zero."""
    index = int(np.searchsorted(sums, max(draw, 0.0) * sums[-1], side="right"))
    return min(index, int(np.searchsorted(sums, sums[-1])))
