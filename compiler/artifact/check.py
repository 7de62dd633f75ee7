"""What a manifest's values must mean together before anything is mapped, allocated or called."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from compiler.artifact.errors import ArtifactError
from compiler.artifact.layouts import WeightLayout, packed_dtype, packed_nbytes
from compiler.artifact.manifest import (
    RECEIPT_FILE,
    REPORT_FILE,
    Bucket,
    Buffer,
    BufferKind,
    DimRange,
    LevelProgram,
    Manifest,
    Weight,
    kernels_path,
)
from compiler.errors import DimError
from compiler.ir.dim import Dim, Shape, bounds, parse_size, product, symbol
from compiler.ir.dtype import itemsize

ALIGNMENT = 64
"""Bytes; of every weight and buffer."""
TOKENS_DIM = "T"
"""The dim that buckets cut, without gaps."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_BESIDE = "|".join(map(re.escape, (REPORT_FILE, RECEIPT_FILE)))
_FILE = re.compile(r"(?:kernels|weights)/[A-Za-z0-9][A-Za-z0-9._-]{0,199}|" + _BESIDE)
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MAX_BYTES = 1 << 48
_MAX_RANK = 8
_MAX_SIZE_TEXT = 120


def check_manifest(manifest: Manifest) -> None:
    """Refuse a manifest that contradicts itself.

    Raises:
        ArtifactError: a path that leaves the artifact, a name used twice or not declared, a size that cannot
            be computed, a weight outside its file, a misaligned offset, or a token count without a bucket.
    """
    _check_dims(manifest.dims)
    _check_model(manifest)
    _check_files(manifest)
    _unique((w.name for w in manifest.weights), "weights")
    for weight in manifest.weights:
        _check_weight(weight, manifest)
    if not manifest.programs:
        raise ArtifactError("there is no program", where="programs")
    _unique((p.level for p in manifest.programs), "programs")
    known = dim_symbols(manifest)
    weights = {w.name for w in manifest.weights}
    for program in manifest.programs:
        _check_program(program, manifest, known, weights)


def dim_symbols(manifest: Manifest) -> Mapping[str, Dim]:
    """The manifest's dims as symbols that sizes are read over."""
    return {d.name: symbol(d.name, d.low, d.high) for d in manifest.dims}


def buffer_shape(buffer: Buffer, known: Mapping[str, Dim]) -> Shape:
    """The sizes of `buffer`'s axes.

    Raises:
        ArtifactError: they are no sizes over the known dims, or may be negative.
    """
    where = f"buffer {buffer.name}"
    if len(buffer.shape) > _MAX_RANK or any(len(text) > _MAX_SIZE_TEXT for text in buffer.shape):
        raise ArtifactError("its shape is too long", where=where)
    try:
        shape = tuple(parse_size(text, known) for text in buffer.shape)
        if any(bounds(size)[0] < 0 for size in shape):
            raise ArtifactError("its size may be negative", where=where)
    except (DimError, ValueError) as error:
        raise ArtifactError(str(error)[:200], where=where) from error
    return shape


def largest_nbytes(buffer: Buffer, known: Mapping[str, Dim]) -> int:
    """Bytes of `buffer` when every dim is at its bound.

    Raises:
        ArtifactError: as `buffer_shape`, or more bytes than any machine has.
    """
    nbytes = itemsize(buffer.dtype)
    for size in buffer_shape(buffer, known):
        nbytes = min(nbytes * bounds(size)[1], _MAX_BYTES + 1)
    if nbytes > _MAX_BYTES:
        raise ArtifactError("its size is beyond any memory", where=f"buffer {buffer.name}")
    return nbytes


def _check_dims(dims: tuple[DimRange, ...]) -> None:
    _unique((d.name for d in dims), "dims")
    for d in dims:
        if not _IDENTIFIER.fullmatch(d.name) or d.low > d.high:
            raise ArtifactError(f"{d.low}..{d.high} is no range of a dim", where=f"dim {d.name}")
    if TOKENS_DIM not in {d.name for d in dims}:
        raise ArtifactError(f"there is no dim {TOKENS_DIM}", where="dims")


def _check_model(manifest: Manifest) -> None:
    """The dims must hold what the model's facts promise to whoever plans batches."""
    model = manifest.model
    high = {d.name: d.high for d in manifest.dims}
    wanted = {"T": model.max_batched_tokens, "B": model.max_sequences}
    wanted["M"] = -(-model.max_context // max(model.block_size, 1))
    for name, least in wanted.items():
        if high.get(name, least) < least:
            raise ArtifactError(f"{name} ends at {high[name]}, the model needs {least}", where="dims")
    for name in ("vocab_size", "max_context", "block_size", "max_batched_tokens", "max_sequences"):
        if not 0 < getattr(model, name) < 1 << 31:
            raise ArtifactError(f"{getattr(model, name)} is out of range", where=f"model.{name}")


def _check_files(manifest: Manifest) -> None:
    for path, entry in manifest.files.items():
        if not _FILE.fullmatch(path):
            raise ArtifactError("not a path of an artifact", where=f"file {path[:200]!r}")
        if not _DIGEST.fullmatch(entry.sha256):
            raise ArtifactError("its digest is no SHA-256", where=f"file {path}")


def _check_weight(weight: Weight, manifest: Manifest) -> None:
    where = f"weight {weight.name}"
    entry = manifest.files.get(weight.file)
    if entry is None or not weight.file.startswith("weights/"):
        raise ArtifactError(f"{weight.file} is no weights file of this artifact", where=where)
    if weight.offset % ALIGNMENT or weight.offset + weight.nbytes > entry.size:
        raise ArtifactError(f"{weight.nbytes} bytes at {weight.offset} are misplaced", where=where)
    if weight.nbytes != _weight_nbytes(weight, where):
        raise ArtifactError(f"{weight.nbytes} bytes do not hold {list(weight.shape)}", where=where)


def _weight_nbytes(weight: Weight, where: str) -> int:
    if weight.layout is WeightLayout.ROW_MAJOR:
        elements = product(weight.shape)
        assert isinstance(elements, int), "integers multiply to an integer"
        return elements * itemsize(weight.dtype)
    if len(weight.shape) != 2 or weight.dtype is not packed_dtype(weight.layout):
        raise ArtifactError(f"a {weight.dtype} {list(weight.shape)} cannot be {weight.layout}", where=where)
    return packed_nbytes(weight.layout, *weight.shape)


def _check_program(
    program: LevelProgram, manifest: Manifest, known: Mapping[str, Dim], weights: set[str]
) -> None:
    where = f"program {program.level}"
    if kernels_path(program.level) not in manifest.files:
        raise ArtifactError("its kernels are no file of this artifact", where=where)
    if program.scratch_bytes > _MAX_BYTES:
        raise ArtifactError(f"{program.scratch_bytes} bytes of scratch are too many", where=where)
    _unique((b.name for b in program.buffers), f"{where}, buffers")
    names = {b.name for b in program.buffers}
    if names & weights:
        raise ArtifactError(f"{min(names & weights)} is a buffer and a weight", where=where)
    for buffer in program.buffers:
        _check_buffer(buffer, known)
    for i, bucket in enumerate(program.buckets):
        _check_bucket(bucket, known, names | weights, f"{where}, bucket {i}")
    _check_cover(program, manifest, where)


def _check_buffer(buffer: Buffer, known: Mapping[str, Dim]) -> None:
    where = f"buffer {buffer.name}"
    largest_nbytes(buffer, known)
    if buffer.offset % ALIGNMENT or buffer.offset > _MAX_BYTES:
        raise ArtifactError(f"offset {buffer.offset} is misplaced", where=where)
    if buffer.offset and buffer.kind is not BufferKind.ARENA:
        raise ArtifactError("only the arena has offsets", where=where)


def _check_bucket(bucket: Bucket, known: Mapping[str, Dim], names: set[str], where: str) -> None:
    _unique((r.name for r in bucket.ranges), where)
    for r in bucket.ranges:
        if r.name not in known or r.low > r.high:
            raise ArtifactError(f"{r.name} in {r.low}..{r.high} is no range of a dim", where=where)
    for launch in bucket.launches:
        if not _IDENTIFIER.fullmatch(launch.kernel):
            raise ArtifactError(f"{launch.kernel[:80]!r} is no symbol", where=where)
        for name in launch.args:
            if name not in names:
                raise ArtifactError(f"{launch.kernel} gets {name[:80]!r}, which is not declared", where=where)


def _check_cover(program: LevelProgram, manifest: Manifest, where: str) -> None:
    """Every token count has a bucket that asks for nothing else."""
    tokens = next(d for d in manifest.dims if d.name == TOKENS_DIM)
    ranges = [
        next(iter(b.ranges), tokens)
        for b in program.buckets
        if not b.ranges or (len(b.ranges) == 1 and b.ranges[0].name == TOKENS_DIM)
    ]
    covered = tokens.low
    for r in sorted(ranges, key=lambda r: (r.low, r.high)):
        if r.low <= covered:
            covered = max(covered, r.high + 1)
    if covered <= tokens.high:
        raise ArtifactError(f"no bucket runs {TOKENS_DIM} = {covered}", where=where)


def _unique(names: Iterable[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ArtifactError(f"{name} appears twice", where=where)
        seen.add(name)
