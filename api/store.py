"""The database for coroutines: short transactions on a few threads of their own, so that no query waits for
HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar

from storage.db import Connection, Database

P = ParamSpec("P")
T = TypeVar("T")


class Store:
    """`await store.read(query, ...)` runs `query(conn, ...)` in a transaction on a thread."""

    def __init__(self, database: Database, threads: int = 8) -> None:
        self._database = database
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="sql")

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        def run() -> T:
            with self._database.read() as conn:
                return query(conn, *args, **kwargs)

        return await asyncio.get_running_loop().run_in_executor(self._threads, run)

    async def write(
        self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Like `read`, committed when `query` returns and rolled back when it raises."""

        def run() -> T:
            with self._database.write() as conn:
                return query(conn, *args, **kwargs)

        return await asyncio.get_running_loop().run_in_executor(self._threads, run)

    def close(self) -> None:
        self._threads.shutdown(wait=True)
        self._database.close()
