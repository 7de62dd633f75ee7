"""Blob work for coroutines: on a few threads of their own, so that a slow disk holds up neither HTTP
nor SQL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from storage.blobs import BlobStore

P = ParamSpec("P")
T = TypeVar("T")


class Files:
    """`await files.run(f, ...)` runs `f(...)` on a thread."""

    def __init__(self, blobs: BlobStore, threads: int = 4) -> None:
        self.blobs = blobs
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="files")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        call = partial(work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete blobs, and directories whose key ends in "/". What is gone already is no error."""
        await self.run(self._delete, tuple(keys))

    def close(self) -> None:
        self._threads.shutdown(wait=True)

    def _delete(self, keys: tuple[str, ...]) -> None:
        for key in keys:
            if key.endswith("/"):
                self.blobs.delete_prefix(key)
            else:
                self.blobs.delete(key)
