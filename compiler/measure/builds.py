"""Builds of candidates: one shared object a batch, compilers side by side, each noted when it is there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from compiler.codegen.cpp import print_kernel
from compiler.codegen.toolchain_errors import ToolchainError
from compiler.measure.ground import Stopped
from compiler.measure.journal import Journal
from compiler.search.candidates import Candidate

HEADER = '#include "kernels.h"\n#include "tiles.h"\n'


def kernels_source(found: Sequence[Candidate], dims: Sequence[str]) -> str:
    """One translation unit with the kernels of these candidates."""
    return HEADER + "\n".join(print_kernel(c.name, c.kernel, dims) for c in found)


class Builds:
    """Where each candidate's code is. `build` compiles a translation unit."""

    def __init__(
        self,
        build: Callable[[str], Path],
        dims: Sequence[str],
        environment: str,
        journal: Journal,
        should_stop: Callable[[], bool],
    ) -> None:
        self._build, self._dims, self._environment = build, dims, environment
        self._journal, self._should_stop = journal, should_stop
        self._batches: dict[str, tuple[Candidate, ...]] = {}
        self._objects: dict[str, Path] = {}

    def each(
        self, batches: Mapping[str, Sequence[Candidate]], is_over: Callable[[], bool] = lambda: False
    ) -> Iterator[str]:
        """Compile every batch, and name each when it is there, in their order, until `is_over`.

        What the compiler refuses is left out. Later batches are built while the caller works on earlier ones.

        Raises:
            Stopped: the caller asked for it.
        """
        sources = {key: kernels_source(some, self._dims) for key, some in batches.items()}
        digests = {key: hashlib.sha256(text.encode()).hexdigest()[:24] for key, text in sources.items()}
        self._batches |= {c.name: tuple(some) for some in batches.values() for c in some}
        missing = [k for k in batches if not self._journal.knows("build", self._environment, digests[k])]
        pool = ThreadPoolExecutor(max_workers=max(1, os.cpu_count() or 1))
        futures = {k: pool.submit(self._build, sources[k]) for k in missing}
        return self._collect(batches, digests, futures, pool, is_over)

    def _collect(
        self,
        batches: Mapping[str, Sequence[Candidate]],
        digests: Mapping[str, str],
        futures: Mapping[str, Future[Path]],
        pool: ThreadPoolExecutor,
        is_over: Callable[[], bool],
    ) -> Iterator[str]:
        with pool:
            for key in batches:
                if self._should_stop() or is_over():
                    pool.shutdown(wait=False, cancel_futures=True)
                    break
                make = partial(self._finish, futures.get(key), batches[key])
                if not self._journal.step("build", self._environment, digests[key], make=make):
                    yield key
        if self._should_stop():
            raise Stopped("the search was stopped")

    def _finish(self, future: Future[Path] | None, some: Sequence[Candidate]) -> str:
        """Wait for a build; what the compiler says against it, or nothing."""
        assert future is not None, "what the journal does not know is being built"
        try:
            path = future.result()
        except ToolchainError as error:
            return str(error)[:500] or "refused"
        self._objects |= {c.name: path for c in some}
        return ""

    def object_of(self, candidate: Candidate) -> Path:
        """The shared object that holds a candidate: one that only the journal knows is made again."""
        if candidate.name not in self._objects:
            batch = self._batches[candidate.name]
            path = self._build(kernels_source(batch, self._dims))
            self._objects |= {c.name: path for c in batch}
        return self._objects[candidate.name]
