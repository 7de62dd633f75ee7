"""Blobs in a directory: temp file, fsync, rename (link, for a conditional create), fsync of the directory.

Keys hold only plain segments, so none names anything outside the root; a reader never sees half a blob.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from common.errors import ChecksumMismatch
from storage.blobs.names import check_key
from storage.blobs.port import StoredBytes
from storage.blobs.signing import signed_query
from storage.errors import BlobExists, BlobNotFound

_CHUNK_BYTES = 1 << 20
_TEMPORARY = ".tmp"  # keys never start with a dot


class DiskBlobs:
    """The BlobStore of one machine.

    `secret` and `url_prefix` serve `presign`: the gateway serves those URLs.
    """

    def __init__(self, root: Path, *, secret: str | None = None, url_prefix: str = "/api/v1/blobs") -> None:
        self.root = root
        self._secret = secret
        self._url_prefix = url_prefix
        (root / _TEMPORARY).mkdir(parents=True, exist_ok=True)

    def path(self, key: str) -> Path:
        """Where a blob, or the directory of a prefix, lies; it may not exist. Read only.

        Raises: BadBlobKey.
        """
        return self.root / check_key(key.removesuffix("/"))

    def writer(
        self,
        key: str,
        *,
        exclusive: bool = False,
        expected_sha256: str | None = None,
        expected_size: int | None = None,
    ) -> DiskWriter:
        """Raises: BadBlobKey."""
        return DiskWriter(self.root, check_key(key), exclusive, expected_sha256, expected_size)

    def put(
        self,
        key: str,
        chunks: Iterable[bytes],
        *,
        expected_sha256: str | None = None,
        expected_size: int | None = None,
    ) -> StoredBytes:
        """Store or replace. Raises: BadBlobKey, ChecksumMismatch."""
        with self.writer(key, expected_sha256=expected_sha256, expected_size=expected_size) as out:
            return _fill(out, chunks)

    def put_if_absent(
        self,
        key: str,
        chunks: Iterable[bytes],
        *,
        expected_sha256: str | None = None,
        expected_size: int | None = None,
    ) -> StoredBytes:
        """Create. Raises: BadBlobKey, BlobExists, ChecksumMismatch."""
        with self.writer(
            key, exclusive=True, expected_sha256=expected_sha256, expected_size=expected_size
        ) as out:
            return _fill(out, chunks)

    def compose(
        self,
        key: str,
        part_keys: Sequence[str],
        *,
        expected_sha256: str | None = None,
        expected_size: int | None = None,
    ) -> StoredBytes:
        """Join parts, which stay. Raises: BadBlobKey, BlobNotFound, ChecksumMismatch."""
        chunks = (chunk for part in part_keys for chunk in self._chunks(part))
        return self.put(key, chunks, expected_sha256=expected_sha256, expected_size=expected_size)

    def open(self, key: str) -> BinaryIO:
        """Raises: BadBlobKey, BlobNotFound."""
        try:
            return self._file(key).open("rb")
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise BlobNotFound(key) from None

    def size_bytes(self, key: str) -> int:
        """Raises: BadBlobKey, BlobNotFound."""
        with self.open(key) as file:
            return os.fstat(file.fileno()).st_size

    def exists(self, key: str) -> bool:
        """Raises: BadBlobKey."""
        return self._file(key).is_file()

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Every key under a directory, sorted. Raises: BadBlobKey."""
        top = self.path(prefix)
        found = (Path(folder, name) for folder, _, names in os.walk(top) for name in names)
        return tuple(sorted(str(path.relative_to(self.root)) for path in found))

    def delete(self, key: str) -> bool:
        """Raises: BadBlobKey."""
        try:
            self._file(key).unlink()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return False
        return True

    def delete_prefix(self, prefix: str) -> int:
        """Delete a directory at one stroke (it is renamed away first); how many blobs it held."""
        count = len(self.keys(prefix))
        away = self.root / _TEMPORARY / f"deleted-{secrets.token_hex(8)}"
        try:
            self.path(prefix).rename(away)
        except FileNotFoundError:
            return 0
        shutil.rmtree(away)
        return count

    def fetch(self, prefix: str, destination: Path) -> Path:
        """The store's own directory: nothing is copied. Raises: BadBlobKey, BlobNotFound."""
        path = self.path(prefix)
        if not path.is_dir():
            raise BlobNotFound(prefix)
        return path

    def presign(self, method: str, key: str, expires_at: int) -> str:
        """Path and query that the gateway accepts until `expires_at`."""
        assert self._secret is not None, "a store that signs links is given a secret"
        return f"{self._url_prefix}/{key}?{signed_query(key, method, expires_at, self._secret)}"

    def sweep(self, older_than_s: float, now: float) -> int:
        """Remove temporary files that a killed process left; how many."""
        count = 0
        for path in (self.root / _TEMPORARY).iterdir():
            if path.stat().st_mtime < now - older_than_s:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
                count += 1
        return count

    def _file(self, key: str) -> Path:
        return self.root / check_key(key)

    def _chunks(self, key: str) -> Iterable[bytes]:
        with self.open(key) as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk


class DiskWriter:
    """A temporary file, hashed while it is written, that `commit` moves into place."""

    def __init__(
        self,
        root: Path,
        key: str,
        exclusive: bool,
        expected_sha256: str | None,
        expected_size: int | None,
    ) -> None:
        self._root = root
        self._key = key
        self._exclusive = exclusive
        self._expected_sha256 = expected_sha256
        self._expected_size = expected_size
        self._temporary = root / _TEMPORARY / secrets.token_hex(16)
        self._file = self._temporary.open("xb")
        self._hash = hashlib.sha256()
        self._size = 0

    @property
    def size_bytes(self) -> int:
        return self._size

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def write(self, chunk: bytes) -> None:
        """Raises: ChecksumMismatch: more bytes than expected."""
        self._size += len(chunk)
        if self._expected_size is not None and self._size > self._expected_size:
            text = f"{self._key} should have {self._expected_size} bytes, but more were sent"
            raise ChecksumMismatch(text, code="size_mismatch")
        self._hash.update(chunk)
        self._file.write(chunk)

    def commit(self) -> StoredBytes:
        """Raises: ChecksumMismatch, BlobExists."""
        self._check()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        target = self._root / self._key
        _make_directories(target.parent)
        try:
            self._move_to(target)
        finally:
            self._temporary.unlink(missing_ok=True)
        _sync_directory(target.parent)
        return StoredBytes(self._key, self._size, self.sha256)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._temporary.unlink(missing_ok=True)

    def _check(self) -> None:
        if self._expected_size is not None and self._size != self._expected_size:
            text = f"{self._key} should have {self._expected_size} bytes, not {self._size}"
            raise ChecksumMismatch(text, code="size_mismatch")
        if self._expected_sha256 is not None and self.sha256 != self._expected_sha256:
            raise ChecksumMismatch(
                f"{self._key} should have sha256 {self._expected_sha256}, not {self.sha256}; send it again"
            )

    def _move_to(self, target: Path) -> None:
        if not self._exclusive:
            os.replace(self._temporary, target)
            return
        try:
            os.link(self._temporary, target)
        except FileExistsError:
            raise BlobExists(self._key) from None


def _fill(out: DiskWriter, chunks: Iterable[bytes]) -> StoredBytes:
    for chunk in chunks:
        out.write(chunk)
    return out.commit()


def _make_directories(path: Path) -> None:
    if path.is_dir():
        return
    _make_directories(path.parent)
    path.mkdir(exist_ok=True)
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
