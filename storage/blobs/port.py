"""The blob port: what the disk and an S3 store both do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """What a write left: counted and hashed on the way."""

    key: str
    size_bytes: int
    sha256: str


class BlobWriter(Protocol):
    """Bytes on their way to a key.

    Nothing is visible before `commit`; leaving the block without it discards.
    """

    @property
    def size_bytes(self) -> int: ...

    @property
    def sha256(self) -> str:
        """Hex digest of the bytes so far."""
        ...

    def write(self, chunk: bytes) -> None: ...

    def commit(self) -> StoredBytes:
        """Make the bytes durable under the key.

        Raises: ChecksumMismatch: they differ from what the writer was told to expect; BlobExists: the
            writer is exclusive and the key has bytes.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class BlobStore(Protocol):
    """Bytes by key. A key is validated (`names.check_key`); `exclusive` writes are conditional creates."""

    def writer(
        self,
        key: str,
        *,
        exclusive: bool = False,
        expected_sha256: str | None = None,
        expected_size: int | None = None,
    ) -> BlobWriter: ...

    def put(
        self,
        key: str,
        chunks: Iterable[bytes],
        *,
        expected_sha256: str | None = None,
        expected_size: int | None = None,
    ) -> StoredBytes:
        """Store or replace."""
        ...

    def put_if_absent(
        self,
        key: str,
        chunks: Iterable[bytes],
        *,
        expected_sha256: str | None = None,
        expected_size: int | None = None,
    ) -> StoredBytes:
        """Conditional create (If-None-Match: *).

        Raises: BlobExists.
        """
        ...

    def compose(
        self,
        key: str,
        part_keys: Sequence[str],
        *,
        expected_sha256: str | None = None,
        expected_size: int | None = None,
    ) -> StoredBytes:
        """Store the parts' bytes, in order, as one blob; the parts stay.

        Raises: BlobNotFound: a part is missing; ChecksumMismatch.
        """
        ...

    def open(self, key: str) -> BinaryIO:
        """Raises: BlobNotFound."""
        ...

    def size_bytes(self, key: str) -> int:
        """Raises: BlobNotFound."""
        ...

    def exists(self, key: str) -> bool: ...

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Every key under a directory, sorted."""
        ...

    def delete(self, key: str) -> bool:
        """Whether there was something to delete."""
        ...

    def delete_prefix(self, prefix: str) -> int:
        """Delete every key under a directory; how many."""
        ...

    def fetch(self, prefix: str, destination: Path) -> Path:
        """A local directory with the blobs under `prefix`: the store's own, or `destination` filled."""
        ...

    def presign(self, method: str, key: str, expires_at: int) -> str:
        """A URL that lets its holder `GET` or `PUT` one blob until `expires_at` (Unix seconds)."""
        ...
