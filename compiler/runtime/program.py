"""A loaded artifact, ready to run: kernels opened, memory in place, launch lists built once.

A step is a copy of its inputs and one call. Needs numpy and the artifact, nothing that compiles.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from compiler.artifact import (
    Artifact,
    ArtifactError,
    Bucket,
    LevelProgram,
    ModelFacts,
    kernels_path,
    open_artifact,
)
from compiler.runtime.batch import StepBatch
from compiler.runtime.buffers import ProgramMemory
from compiler.runtime.cpu import best_level, host_features, usable_cores
from compiler.runtime.errors import ProgramClosed, ProgramError, StepRefused
from compiler.runtime.memory import Array
from compiler.runtime.team import KernelLibrary, LaunchList, Team

TARGET = "cpu"


@dataclass(frozen=True, slots=True)
class LaunchTime:
    """One kernel of a timed step."""

    kernel: str
    seconds: float


def load_program(
    artifact_dir: Path | str,
    *,
    threads: int | None = None,
    kv_blocks: int,
    verify: bool = False,
    level: str | None = None,
    pin_threads: bool = False,
) -> Program:
    """Load the best level of an artifact that this CPU runs.

    `kv_blocks` counts all blocks of the cache, the null block among them. `threads` defaults to the cores
    that this process may use. The kernels' digest is always compared, the weights' too with `verify`. `level`
    asks for one level, not the best; `pin_threads` keeps each thread but the caller's on a core of its own.

    Raises:
        ArtifactError: the directory holds no artifact, or a damaged one.
        UnsupportedCpu: no level of it runs here.
        LoadFailed: memory or threads ran out, or the kernels cannot be opened.
    """
    artifact = open_artifact(Path(artifact_dir))
    if artifact.manifest.target != TARGET:
        raise ArtifactError(
            f"its target is {artifact.manifest.target}, not {TARGET}", where=str(artifact_dir)
        )
    features = host_features()
    levels = {p.level: p for p in artifact.manifest.programs}
    chosen = best_level(features, levels if level is None else {level} & set(levels))
    spec = levels[chosen.name]
    library = KernelLibrary(artifact.file(kernels_path(spec.level), verify=True))
    try:
        library.check_runs_on(features, spec.level)
        memory = ProgramMemory(artifact, spec, kv_blocks, verify=verify)
        plans = [_Plan.build(bucket, library, memory) for bucket in spec.buckets]
        memory.finish_checks()
        team = library.team(usable_cores() if threads is None else threads, spec.scratch_bytes)
    except BaseException:
        library.close()
        raise
    if pin_threads and hasattr(os, "sched_getaffinity"):
        team.pin([None, *sorted(os.sched_getaffinity(0))[1:]])
    return Program(artifact, spec, library, team, memory, plans)


class Program:
    """Runs steps. One caller at a time; the logits of a step are valid until the next one."""

    def __init__(
        self,
        artifact: Artifact,
        spec: LevelProgram,
        library: KernelLibrary,
        team: Team,
        memory: ProgramMemory,
        plans: Sequence[_Plan],
    ) -> None:
        """Use `load_program`."""
        self.model: ModelFacts = artifact.manifest.model
        self.level = spec.level
        self.threads = team.threads
        self.kv_blocks = memory.kv_blocks
        self._library, self._team, self._plans = library, team, plans
        self._memory: ProgramMemory | None = memory
        self._dims = np.zeros(len(artifact.manifest.dims), dtype=np.int64)
        self._order = [d.name for d in artifact.manifest.dims]

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    @property
    def max_context(self) -> int:
        return self.model.max_context

    @property
    def block_size(self) -> int:
        return self.model.block_size

    @property
    def max_batched_tokens(self) -> int:
        return self.model.max_batched_tokens

    @property
    def max_sequences(self) -> int:
        return self.model.max_sequences

    def step(self, batch: StepBatch) -> npt.NDArray[np.float32]:
        """Logits [R, vocabulary] of the batch's logit rows: a view that the next step overwrites.

        Raises:
            StepRefused: the batch is outside what the program was built for; nothing ran.
            ProgramClosed: after `close`.
        """
        memory, plan, rows = self._prepare(batch)
        self._team.run(plan.launches, self._dims)
        return memory.logits[:rows]

    def run_timed(self, batch: StepBatch) -> list[LaunchTime]:
        """Run a step with a barrier after every kernel, and say how long each took.

        Raises:
            StepRefused, ProgramClosed: as `step`.
        """
        _, plan, _ = self._prepare(batch)
        seconds = self._team.run_timed(plan.launches, self._dims)
        return [LaunchTime(kernel, s) for kernel, s in zip(plan.kernels, seconds, strict=True)]

    def cache(self, name: str) -> Array:
        """The cache buffer called `name`, as it is and in place; bf16 as uint16 bits.

        Raises:
            ProgramError: there is none.
            ProgramClosed: after `close`.
        """
        memory = self._open_memory()
        if name not in memory.caches:
            raise ProgramError(f"there is no cache {name}")
        return memory.caches[name]

    def close(self) -> None:
        """Join the threads, unload the kernels, let go of the memory. Again is harmless."""
        if self._memory is None:
            return
        self._memory = None
        self._team.close()
        self._library.close()

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _prepare(self, batch: StepBatch) -> tuple[ProgramMemory, _Plan, int]:
        memory = self._open_memory()
        sizes = memory.inputs.write(batch)
        self._dims[:] = [sizes[name] for name in self._order]
        for plan in self._plans:
            if plan.fits(sizes):
                return memory, plan, sizes["R"]
        raise StepRefused("token_ids", f"no bucket of the program runs {sizes}")

    def _open_memory(self) -> ProgramMemory:
        if self._memory is None:
            raise ProgramClosed
        return self._memory


@dataclass(frozen=True, slots=True)
class _Plan:
    """A bucket whose names have become addresses."""

    ranges: tuple[tuple[str, int, int], ...]
    kernels: tuple[str, ...]
    launches: LaunchList

    @classmethod
    def build(cls, bucket: Bucket, library: KernelLibrary, memory: ProgramMemory) -> _Plan:
        launches = [
            (library.address(x.kernel), [memory.addresses[a] for a in x.args], x.stage_end)
            for x in bucket.launches
        ]
        ranges = tuple((r.name, r.low, r.high) for r in bucket.ranges)
        return cls(ranges, tuple(x.kernel for x in bucket.launches), LaunchList(launches))

    def fits(self, sizes: Mapping[str, int]) -> bool:
        return all(low <= sizes[name] <= high for name, low, high in self.ranges)
