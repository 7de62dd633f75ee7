"""Whether the small files of a build are still those published; the replica checks weights and kernels."""

from __future__ import annotations

from common.errors import ArtifactDamaged
from storage.blobs import BlobStore, StoredBytes, broken
from storage.records import Build


def check_listed_files(blobs: BlobStore, build: Build) -> None:
    """Read what the build's facts list: the manifest, by which all else is judged, and the tokenizer's files.

    Raises: ArtifactDamaged: one is not what was published, or is gone.
    """
    prefixes = {"artifact": build.artifact_prefix, "tokenizer": build.tokenizer_prefix}
    listed = [
        StoredBytes(f"{prefixes[folder]}/{name}", int(size), str(sha256))
        for folder, name, size, sha256 in build.info.get("files", ())
    ]
    if lost := broken(blobs, listed):
        names = ", ".join(sorted(blob.key.rpartition("/")[2] for blob in lost))
        raise ArtifactDamaged(f"{names}: not the bytes that were published")
