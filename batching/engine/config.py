"""The engine's fixed limits, checked once against the Program that it will step."""

from __future__ import annotations

from dataclasses import dataclass

from batching.engine.ports import Program
from common.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Limits of one engine. `kv_blocks` counts usable blocks; the null block (number 0) comes on top."""

    kv_blocks: int
    max_sequences: int = 32
    max_batched_tokens: int = 512
    max_waiting: int = 1024

    def check(self, program: Program) -> None:
        """Raises: `InvalidInput` when a limit is not positive, or is beyond what `program` was built for."""
        limits = (self.kv_blocks, self.max_sequences, self.max_batched_tokens, self.max_waiting)
        if min(limits) < 1:
            raise InvalidInput(f"engine limits must be positive: {self}")
        if self.max_batched_tokens < self.max_sequences:
            raise InvalidInput(
                f"a step of {self.max_batched_tokens} tokens cannot hold one token for each of "
                f"{self.max_sequences} sequences; raise max_batched_tokens or lower max_sequences"
            )
        if self.max_sequences > program.max_sequences or self.max_batched_tokens > program.max_batched_tokens:
            raise InvalidInput(
                f"the artifact was built for {program.max_sequences} sequences and "
                f"{program.max_batched_tokens} tokens a step, "
                f"not {self.max_sequences} and {self.max_batched_tokens}"
            )
