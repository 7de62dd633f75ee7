"""Opens an artifact: reads and checks its manifest, and hands out files only after a look at them."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from compiler.artifact.check import check_manifest
from compiler.artifact.codec import MAX_MANIFEST_BYTES, decode_manifest
from compiler.artifact.errors import ArtifactError
from compiler.artifact.manifest import MANIFEST_FILE, LevelProgram, Manifest, kernels_path


@dataclass(frozen=True, slots=True)
class Artifact:
    """A directory whose manifest was read and checked. Its other files are checked as they are asked for."""

    root: Path
    manifest: Manifest

    def file(self, path: str, *, verify: bool) -> Path:
        """The place of a file that the manifest lists; with `verify` its digest is compared too.

        Raises:
            ArtifactError: it is not listed, missing, no regular file, or not of the size and digest listed.
        """
        entry = self.manifest.files.get(path)
        if entry is None:
            raise ArtifactError("not a file of this artifact", where=path[:200])
        place = self.root / path
        size = _regular_size(place, path)
        if size != entry.size:
            raise ArtifactError(f"{size} bytes, expected {entry.size}", where=path)
        if verify and _sha256(place) != entry.sha256:
            raise ArtifactError("its content does not match its digest", where=path)
        return place

    def files_of(self, program: LevelProgram) -> frozenset[str]:
        """What a replica needs to run `program`: kernels, and the files of the weights that it reads."""
        used = program.names_used()
        weights = (w.file for w in self.manifest.weights if w.name in used)
        return frozenset((kernels_path(program.level), *weights))

    def verify(self, paths: Iterable[str] | None = None) -> None:
        """Compare the digests of `paths`, or of all files. Reads them whole.

        Raises:
            ArtifactError: as `file`.
        """
        for path in sorted(self.manifest.files if paths is None else paths):
            self.file(path, verify=True)


def open_artifact(root: Path) -> Artifact:
    """Read and check the manifest in `root`.

    Raises:
        ArtifactError: there is none, or it is damaged or contradicts itself.
    """
    place = root / MANIFEST_FILE
    if _regular_size(place, MANIFEST_FILE) > MAX_MANIFEST_BYTES:
        raise ArtifactError("too large", where=MANIFEST_FILE)
    manifest = decode_manifest(place.read_bytes())
    check_manifest(manifest)
    return Artifact(root, manifest)


def _regular_size(place: Path, path: str) -> int:
    """Links are refused: an artifact's files are its own, also those of its folders."""
    try:
        status = os.lstat(place)
        folder_is_link = place.parent.is_symlink() and "/" in path
    except OSError as error:
        raise ArtifactError(error.strerror or "cannot be read", where=path) from error
    if folder_is_link or not stat.S_ISREG(status.st_mode):
        raise ArtifactError("not a regular file of this artifact", where=path)
    return status.st_size


def _sha256(place: Path) -> str:
    with place.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
