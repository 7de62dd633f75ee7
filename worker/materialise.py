"""Brings a revision's files from the blob store into a directory, hashing on the way."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from common.errors import ChecksumMismatch, Problem, UploadRefused
from storage.blobs import BlobStore
from storage.parts import is_safe_name
from storage.records import RevisionFile
from worker.errors import CompileStopped

_CHUNK_BYTES = 4 << 20


def materialise(
    blobs: BlobStore,
    files: Sequence[RevisionFile],
    directory: Path,
    on_bytes: Callable[[int], None],
    should_stop: Callable[[], bool],
) -> None:
    """Write each file under its own name into `directory`; `on_bytes` hears the total so far.

    Raises:
        UploadRefused: a name that could leave the directory.
        BlobNotFound: the store lost a file.
        ChecksumMismatch: its bytes are not those that were announced.
        CompileStopped.
    """
    done = 0
    for file in files:
        digest, size = hashlib.sha256(), 0
        with blobs.open(file.blob_key) as source, _create(directory, file.name) as target:
            for chunk in _chunks(source):
                if should_stop():
                    raise CompileStopped
                target.write(chunk)
                digest.update(chunk)
                size += len(chunk)
                on_bytes(done + size)
        done += size
        if digest.hexdigest() != file.sha256:
            raise ChecksumMismatch(
                f"{file.name}: {size} bytes with sha256 {digest.hexdigest()} are stored, "
                f"{file.size_bytes} bytes with {file.sha256} were announced; upload the file again"
            )


def _create(directory: Path, name: str) -> BinaryIO:
    if not is_safe_name(name):
        text = f"file name {name!r:.80} is not a plain relative path"
        raise UploadRefused((Problem("bad_file_name", text, name),))
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("xb")


def _chunks(source: BinaryIO) -> Iterator[bytes]:
    while chunk := source.read(_CHUNK_BYTES):
        yield chunk
