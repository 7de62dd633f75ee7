"""What one step of a Program runs: token rows, where their keys and values go, and which rows need logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int32s = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class StepBatch:
    """T token rows of B sequences in one forward pass; every array is C-contiguous int32.

    A row's own key and value are written to its slot before any row of the step reads the cache, so rows of
    one sequence in one step see each other as far as their positions allow. Row `t` attends to positions
    `0..positions[t]` of its sequence, found through `block_tables[sequence_index[t]]`. Block 0 is the null
    block: no sequence owns it, unused table entries name it, and no sequence reads what is written there.
    """

    token_ids: Int32s
    """[T] the token to embed."""
    positions: Int32s
    """[T] its position in its sequence, from 0."""
    sequence_index: Int32s
    """[T] its sequence's row in `block_tables`; rows of one sequence are adjacent and ascend in position."""
    slots: Int32s
    """[T] block * block_size + offset, where its key and value go; no two rows share a slot."""
    block_tables: Int32s
    """[B, M] each sequence's blocks in order, padded with 0; M is the longest table of this step."""
    logit_rows: Int32s
    """[R] ascending indices into T of the rows whose logits are wanted."""
