"""A program without weights whose logits show every mistake in paging.

A row's logits are a hash of its sequence's whole history, read back from the cache through the block table:
a block that was lost, shared wrongly or overwritten changes the answer, or is caught at once by its position.
Tokens 0..255 are bytes; `NAN_TOKEN` poisons the logits of its row, `HANG_TOKEN` never returns,
`CRASH_TOKEN` raises.
"""

from __future__ import annotations

import codecs
import hashlib
import threading

import numpy as np

from compiler.runtime.batch import StepBatch

VOCABULARY = 260
STOP_TOKEN = 256
NAN_TOKEN = 257
HANG_TOKEN = 258
CRASH_TOKEN = 259


def logits_after(tokens: list[int]) -> np.ndarray:
    """[VOCABULARY] logits after a history; printable characters are likeliest, control tokens never drawn."""
    digest = hashlib.blake2b(np.array(tokens, dtype=np.int64).tobytes(), digest_size=8).digest()
    rng = np.random.default_rng(int.from_bytes(digest, "little"))
    logits = rng.standard_normal(VOCABULARY, dtype=np.float32) * 2
    logits[32:127] += 4
    logits[NAN_TOKEN:] = -np.inf
    if tokens[-1] == NAN_TOKEN:
        logits[:] = np.nan
    return logits


class FakeProgram:
    """`compiler.runtime`'s Program over a cache of (token, position). `step_s` is how long a step takes."""

    def __init__(
        self,
        blocks: int,
        *,
        block_size: int = 4,
        max_context: int = 256,
        max_batched_tokens: int = 64,
        max_sequences: int = 8,
        step_s: float = 0.0,
    ) -> None:
        self.vocab_size = VOCABULARY
        self.max_context = max_context
        self.block_size = block_size
        self.max_batched_tokens = max_batched_tokens
        self.max_sequences = max_sequences
        self.batches: list[StepBatch] = []
        self._tokens = np.full((blocks + 1) * block_size, -1, dtype=np.int64)
        self._positions = np.full((blocks + 1) * block_size, -1, dtype=np.int64)
        self._step_s = step_s
        self._never = threading.Event()

    def step(self, batch: StepBatch) -> np.ndarray:
        assert len(batch.token_ids) <= self.max_batched_tokens
        assert len(set(batch.slots.tolist())) == len(batch.slots), "two tokens share a slot"
        self.batches.append(batch)
        del self.batches[:-1000]
        if HANG_TOKEN in batch.token_ids:
            self._never.wait()
        if CRASH_TOKEN in batch.token_ids:
            raise RuntimeError("the fake program was told to crash")
        self._never.wait(self._step_s)
        self._tokens[batch.slots] = batch.token_ids
        self._positions[batch.slots] = batch.positions
        rows = [logits_after(self._history(batch, int(row))) for row in batch.logit_rows]
        return np.array(rows, dtype=np.float32).reshape(-1, VOCABULARY)

    def close(self) -> None:
        self._never.set()

    def _history(self, batch: StepBatch, row: int) -> list[int]:
        positions = np.arange(batch.positions[row] + 1)
        table = batch.block_tables[batch.sequence_index[row]]
        slots = table[positions // self.block_size] * self.block_size + positions % self.block_size
        assert np.array_equal(self._positions[slots], positions), "a block was lost or overwritten"
        return self._tokens[slots].tolist()


class ByteStream:
    """Bytes to text; what is not a byte has no text."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        return self._decoder.decode(bytes([token_id])) if token_id < 256 else ""

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class ByteDetokenizer:
    def stream(self) -> ByteStream:
        return ByteStream()

    def token_text(self, token_id: int) -> str:
        return bytes([token_id]).decode("latin-1") if token_id < 256 else f"<{token_id}>"
