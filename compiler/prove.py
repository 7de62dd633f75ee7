"""The last check of a compile: the finished artifact against the definitions it came from, with the real
weights.

Kernels passed the gate one by one; this finds faults of the whole (a wrong buffer, a missing barrier, a
weight packed
under another's name). The reference is the interpreter of index terms, definition by definition, in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.errors import CompilerError
from compiler.ir.dim import bind
from compiler.ir.dtype import DType, round_to_bf16, to_numpy_storage
from compiler.lower.definitions import Definition
from compiler.lower.interpret import interpret
from compiler.runtime import StepBatch, load_program
from compiler.search.arrange import Arrangement

Array = npt.NDArray[Any]
WeightReader = Callable[[str], Array]

TOLERANCE = {"f32": 2e-4, "bf16": 4e-2}
"""Of the largest logit. Both sides round to bf16 at the same points; a tie that falls otherwise moves the
rest.
"""
_PROMPT = 5


class ArtifactDisagrees(CompilerError):
    """The finished program does not compute what its definitions say: a fault of the compiler."""

    code = "artifact_disagrees"

    def __init__(self, error: float, tolerance: float) -> None:
        super().__init__(f"the artifact's logits differ from the reference by {error:.3g} of {tolerance:.3g}")
        self.error = error


@dataclass(slots=True)
class _Reference:
    """Runs a program's definitions on arrays, in their order."""

    arranged: Arrangement
    read_weight: WeightReader
    caches: dict[str, Array] = field(default_factory=dict)

    def step(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> Array:
        """The graph's logits; caches are kept for the next step."""
        values: dict[str, Array] = {f"in:{name}": array for name, array in inputs.items()}
        for name, node in self.arranged.graph.inputs.items():
            if name not in inputs:
                shape = tuple(bind(s, dims) for s in node.shape)
                values[f"in:{name}"] = self.caches.setdefault(
                    name, np.zeros(shape, to_numpy_storage(node.dtype))
                )
        last = ""
        for group in self.arranged.plan:
            for definition in group:
                self._define(definition, values, dims)
                last = definition.name
        return values[last]

    def _define(self, d: Definition, values: dict[str, Array], dims: Mapping[str, int]) -> None:
        read = {b: values[b] if b in values else self.read_weight(b) for b in d.reads()}
        result = interpret(d.term, d.axes, d.extents, read, dims, np.float32)
        stored = round_to_bf16(result) if d.dtype is DType.BF16 else result.astype(to_numpy_storage(d.dtype))
        if d.aliases is None:
            values[d.name] = stored
            return
        target = values[d.aliases]
        places = tuple(interpret(i, d.axes, d.extents, read, dims).astype(np.int64) for i in d.place.indices)
        target[places] = stored
        values[d.name] = target


def prove(artifact: Path, arranged: Arrangement, read_weight: WeightReader, dtype: str, level: str) -> float:
    """`achieved_error`, refused where it is beyond what rounding explains.

    Raises:
        ArtifactDisagrees: it is.
    """
    error = achieved_error(artifact, arranged, read_weight, level)
    if not error <= TOLERANCE[dtype]:
        raise ArtifactDisagrees(error, TOLERANCE[dtype])
    return error


def achieved_error(artifact: Path, arranged: Arrangement, read_weight: WeightReader, level: str) -> float:
    """Run a prompt and one more token through a level of the artifact and through the definitions.

    Returns the largest difference of a logit, relative to the largest logit.
    """
    reference = _Reference(arranged, read_weight)
    worst = 0.0
    program = load_program(artifact, kv_blocks=2, level=level)
    try:
        for start, count in ((0, _PROMPT), (_PROMPT, 1)):
            batch = _batch(start, count, program.vocab_size)
            got = program.step(batch)
            wanted = reference.step(_named(batch), {"T": count, "R": 1, "B": 1, "M": 1, "NB": 2})
            scale = max(float(np.abs(wanted).max()), 1e-6)
            worst = max(worst, float(np.abs(got - wanted).max()) / scale)
    finally:
        program.close()
    return worst


def _batch(start: int, count: int, vocab_size: int) -> StepBatch:
    """`count` tokens of one sequence from `start`, in block 1; the last one's logits."""
    positions = np.arange(start, start + count, dtype=np.int32)
    tokens = (positions * 7919 + 11) % vocab_size
    return StepBatch(
        token_ids=tokens.astype(np.int32),
        positions=positions,
        sequence_index=np.zeros(count, np.int32),
        slots=positions + 16,
        block_tables=np.ones((1, 1), np.int32),
        logit_rows=np.array([count - 1], np.int32),
    )


def _named(batch: StepBatch) -> dict[str, Array]:
    return {
        "tokens": batch.token_ids,
        "positions": batch.positions,
        "sequence": batch.sequence_index,
        "slots": batch.slots,
        "block_tables": batch.block_tables,
        "logit_rows": batch.logit_rows,
    }
