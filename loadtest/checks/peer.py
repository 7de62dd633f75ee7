"""transformers as the oracle: logits and greedy continuations of a Hugging Face checkpoint folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Continuation:
    """Greedy ids, and by how much the best logit exceeded the second at each."""

    ids: tuple[int, ...]
    margins: tuple[float, ...]


class Peer:
    """One model in one dtype, run eagerly, one sequence at a time."""

    def __init__(self, checkpoint: Path, dtype: torch.dtype, threads: int | None = None) -> None:
        """`threads` is torch's for the whole process; by default one a core."""
        torch.set_num_threads(threads or os.cpu_count() or 1)
        self._model = AutoModelForCausalLM.from_pretrained(
            str(checkpoint), dtype=dtype, attn_implementation="eager"
        )

    def logits(self, ids: Sequence[int]) -> Floats:
        """[tokens, vocabulary], after every token of `ids`."""
        with torch.inference_mode():
            found: Floats = self._model(torch.tensor([list(ids)])).logits[0].float().numpy()
        return found

    def greedy(self, ids: Sequence[int], count: int) -> Continuation:
        """The `count` likeliest tokens, one after the other; no id ends it, ties go to the lower id."""
        made: list[int] = []
        margins: list[float] = []
        fed, cache = torch.tensor([list(ids)]), None
        with torch.inference_mode():
            while len(made) < count:
                out = self._model(fed, cache=cache, use_cache=True, logits_to_keep=1)
                cache = out.cache
                best = out.logits[0, -1].float().topk(2)
                made.append(int(out.logits[0, -1].argmax()))
                margins.append(float(best.values[0] - best.values[1]))
                fed = torch.tensor([[made[-1]]])
        return Continuation(tuple(made), tuple(margins))
