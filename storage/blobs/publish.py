"""Publishing a build: its files first, then one conditional create that makes it the build of its key.

Two workers may compile the same key, and measured search makes their bytes differ; so each publication has a
directory of its own, and `publication.json` under the key points to the first that was complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.blobs.names import build_prefix, check_key
from storage.blobs.port import BlobStore, StoredBytes
from storage.errors import BadBlobKey, BlobExists, BlobNotFound

_POINTER = "publication.json"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Publication:
    """The build of a key. `prefix` holds the published directories; `is_winner`: this call published it."""

    build_key: str
    prefix: str
    files: tuple[StoredBytes, ...]
    is_winner: bool

    def directory(self, name: str) -> str:
        """Prefix of one published directory, such as `artifact` or `tokenizer`."""
        return f"{self.prefix}/{name}"


def publish(
    store: BlobStore,
    tenant_id: str,
    build_key: str,
    publication_id: str,
    directories: Mapping[str, Path],
) -> Publication:
    """Store `directories` (name to local directory) as the build of `build_key`, or return the one it has.

    `publication_id` is the attempt's own, e.g. job id and token. What a loser stored is deleted again.
    """
    if (found := find_publication(store, tenant_id, build_key)) is not None:
        return found
    top = build_prefix(tenant_id, build_key)
    prefix = check_key(f"{top}/{publication_id}")
    store.delete_prefix(prefix)  # what this very attempt left when it died half-way
    files = tuple(_store(store, f"{prefix}/{name}", path) for name, path in _files(directories))
    body = {
        "build_key": build_key,
        "prefix": prefix,
        "files": [{"key": f.key, "size_bytes": f.size_bytes, "sha256": f.sha256} for f in files],
    }
    try:
        store.put_if_absent(f"{top}/{_POINTER}", [json.dumps(body, sort_keys=True).encode()])
    except BlobExists:
        store.delete_prefix(prefix)
        winner = find_publication(store, tenant_id, build_key)
        assert winner is not None, "the pointer exists: it was in the way"
        return winner
    return Publication(build_key, prefix, files, is_winner=True)


def find_publication(store: BlobStore, tenant_id: str, build_key: str) -> Publication | None:
    """The build of a key, when there is one: a compile that would repeat it is not needed.

    A pointer that cannot be understood any more is removed: it would be in the way for ever.
    """
    pointer = f"{build_prefix(tenant_id, build_key)}/{_POINTER}"
    try:
        with store.open(pointer) as file:
            return _decode(build_key, file.read())
    except BlobNotFound:
        return None
    except (BadBlobKey, ValueError, KeyError, TypeError, AttributeError):
        store.delete(pointer)
        return None


def _decode(build_key: str, text: bytes) -> Publication:
    """Raises: ValueError, KeyError, TypeError, AttributeError: no pointer of ours, or a damaged one."""
    raw: dict[str, Any] = json.loads(text)
    prefix = check_key(raw["prefix"])
    files = tuple(StoredBytes(check_key(f["key"]), f["size_bytes"], f["sha256"]) for f in raw["files"])
    if not files or any(not file.key.startswith(f"{prefix}/") for file in files):
        raise ValueError("files outside their publication")
    return Publication(build_key, prefix, files, is_winner=False)


def _files(directories: Mapping[str, Path]) -> Iterable[tuple[str, Path]]:
    for name, top in sorted(directories.items()):
        for folder, folders, names in os.walk(top):
            folders.sort()
            for file in sorted(names):
                path = Path(folder, file)
                yield f"{name}/{path.relative_to(top).as_posix()}", path


def _store(store: BlobStore, key: str, path: Path) -> StoredBytes:
    with path.open("rb") as file:
        return store.put(key, iter(lambda: file.read(_CHUNK_BYTES), b""))
