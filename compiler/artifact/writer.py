"""Writes an artifact: weights streamed into content-addressed files, kernels and report, the manifest last.

Everything goes to a folder beside the destination, which takes its name only when it is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from compiler.artifact.check import ALIGNMENT, check_manifest
from compiler.artifact.codec import encode_manifest
from compiler.artifact.errors import ArtifactError
from compiler.artifact.layouts import WeightLayout, packed_dtype
from compiler.artifact.manifest import (
    MANIFEST_FILE,
    RECEIPT_FILE,
    REPORT_FILE,
    DimRange,
    FileEntry,
    LevelProgram,
    Manifest,
    ModelFacts,
    Weight,
    kernels_path,
)
from compiler.artifact.receipt import Receipt, encode_receipt
from compiler.codegen.layout import pack_chunks
from compiler.ir.dtype import DType

Array = npt.NDArray[Any]

PAGE = 4096
"""A weight of a page or more starts on a page of its own."""

_DTYPES = {np.dtype(np.float32): DType.F32, np.dtype(np.uint16): DType.BF16, np.dtype(np.float16): DType.F16}
_DTYPES |= {np.dtype(np.int32): DType.I32, np.dtype(np.bool_): DType.BOOL}


class ArtifactWriter:
    """Collects an artifact; `finish` makes it appear. Leaving the context without it leaves nothing."""

    def __init__(self, destination: Path) -> None:
        _check_replaceable(destination)
        destination.parent.mkdir(parents=True, exist_ok=True)
        self._destination = destination
        self._root = Path(tempfile.mkdtemp(dir=destination.parent, prefix=f".{destination.name}."))
        self._groups: dict[WeightLayout, _WeightFile] = {}
        self._weights: list[Weight] = []
        self._files: dict[str, FileEntry] = {}
        (self._root / "weights").mkdir()
        (self._root / "kernels").mkdir()

    def __enter__(self) -> ArtifactWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for group in self._groups.values():
            group.file.close()
        shutil.rmtree(self._root, ignore_errors=True)

    def add_weight(self, name: str, array: Array, layout: WeightLayout = WeightLayout.ROW_MAJOR) -> None:
        """Pack `array` and write it. One file holds all weights of a layout, so levels share what they share.

        Raises:
            LayoutError: the array cannot be packed this way.
            ArtifactError: an element type that artifacts do not hold.
        """
        dtype = packed_dtype(layout) or _DTYPES.get(array.dtype)
        if dtype is None:
            raise ArtifactError(f"{array.dtype} is not held by artifacts", where=f"weight {name}")
        if layout not in self._groups:
            self._groups[layout] = _WeightFile(self._root / "weights" / f".{layout}")
        offset, nbytes = self._groups[layout].append(array, layout)
        shape = tuple(int(n) for n in array.shape)
        self._weights.append(Weight(name, layout, offset, nbytes, dtype, layout, shape))

    def add_kernels(self, level: str, shared_object: Path) -> None:
        """Copy a level's kernels in."""
        self._put(kernels_path(level), shared_object.read_bytes())

    def add_report(self, report: Mapping[str, object]) -> None:
        """Keep what the compile has to say about itself. It is not read when a program runs."""
        self._put(REPORT_FILE, json.dumps(report, indent=1, sort_keys=True).encode() + b"\n")

    def finish(
        self,
        *,
        target: str,
        dims: Sequence[DimRange],
        model: ModelFacts,
        programs: Sequence[LevelProgram],
        prove: Callable[[Path, Manifest], Receipt] | None = None,
    ) -> Manifest:
        """Close the weights, write the manifest, and move the artifact to its destination.

        `prove` sees the artifact where it still lies aside; what it attests becomes the receipt, and what it
        raises leaves nothing behind.

        Raises:
            ArtifactError: the manifest would contradict itself; nothing appears then.
        """
        names = {layout: self._close(group) for layout, group in self._groups.items()}
        weights = tuple(_in_file(w, names[w.layout]) for w in self._weights)
        manifest = Manifest(target, tuple(dims), model, self._files, weights, tuple(programs))
        check_manifest(manifest)
        if prove is not None:
            (self._root / MANIFEST_FILE).write_bytes(encode_manifest(manifest))
            self._put(RECEIPT_FILE, encode_receipt(prove(self._root, manifest)))
        (self._root / MANIFEST_FILE).write_bytes(encode_manifest(manifest))
        os.chmod(self._root, 0o755)
        _replace(self._destination, self._root)
        return manifest

    def _put(self, path: str, data: bytes) -> None:
        (self._root / path).write_bytes(data)
        self._files[path] = FileEntry(hashlib.sha256(data).hexdigest(), len(data))

    def _close(self, group: _WeightFile) -> str:
        group.file.close()
        digest = group.hash.hexdigest()
        path = f"weights/{digest}.bin"
        os.replace(group.path, self._root / path)
        self._files[path] = FileEntry(digest, group.size)
        return path


class _WeightFile:
    """A weights file while it grows; its name is its digest, known at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: IO[bytes] = path.open("wb")
        self.hash = hashlib.sha256()
        self.size = 0

    def append(self, array: Array, layout: WeightLayout) -> tuple[int, int]:
        """Offset and bytes of the array just written."""
        alignment = PAGE if array.nbytes >= PAGE else ALIGNMENT
        self._write(bytes(-self.size % alignment))
        offset = self.size
        for chunk in pack_chunks(array, layout):
            self._write(chunk.data)
        return offset, self.size - offset

    def _write(self, data: bytes | memoryview) -> None:
        self.file.write(data)
        self.hash.update(data)
        self.size += len(data)


def _in_file(weight: Weight, file: str) -> Weight:
    return Weight(weight.name, file, weight.offset, weight.nbytes, weight.dtype, weight.layout, weight.shape)


def _check_replaceable(destination: Path) -> None:
    """An earlier artifact or an empty folder may be replaced; anything else is somebody's data."""
    if not destination.exists() or (destination / MANIFEST_FILE).is_file():
        return
    if not destination.is_dir() or any(destination.iterdir()):
        raise ArtifactError("exists and is no artifact; choose another place", where=str(destination))


def _replace(destination: Path, finished: Path) -> None:
    _check_replaceable(destination)
    if not destination.exists():
        os.rename(finished, destination)
        return
    with tempfile.TemporaryDirectory(dir=destination.parent, prefix=".replaced.") as aside:
        os.rename(destination, Path(aside) / "old")
        os.rename(finished, destination)
