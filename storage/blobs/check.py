"""Reading stored bytes again: whether they are still those that were stored. Disks forget."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from storage.blobs.port import BlobStore, StoredBytes
from storage.errors import BlobNotFound

_CHUNK_BYTES = 4 << 20
_THREADS = 4


def broken(
    store: BlobStore, expected: Sequence[StoredBytes], should_stop: Callable[[], bool] = lambda: False
) -> tuple[StoredBytes, ...]:
    """Those of `expected` that are gone, have other bytes or cannot be read. Reads them whole, four at once.

    What was not read to its end when `should_stop` became true counts as broken: nothing speaks for it.
    """
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="blob-check") as threads:
        found = threads.map(lambda blob: _is_whole(store, blob, should_stop), expected)
        return tuple(blob for blob, is_whole in zip(expected, found, strict=True) if not is_whole)


def _is_whole(store: BlobStore, blob: StoredBytes, should_stop: Callable[[], bool]) -> bool:
    digest = hashlib.sha256()
    try:
        if store.size_bytes(blob.key) != blob.size_bytes:
            return False
        with store.open(blob.key) as stored:
            while chunk := stored.read(_CHUNK_BYTES):
                if should_stop():
                    return False
                digest.update(chunk)
    except (BlobNotFound, OSError):  # a sector that cannot be read any more is an OSError
        return False
    return digest.hexdigest() == blob.sha256
