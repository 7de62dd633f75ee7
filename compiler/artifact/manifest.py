"""What an artifact says about itself: the schema of `manifest.json`, as values.

Sizes are texts over the manifest's dims ("T*192"), read by `compiler.ir.dim.parse_size`. A launch's arguments
name buffers of its program or weights of the artifact; those names share one namespace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from compiler.artifact.layouts import WeightLayout
from compiler.ir.dtype import DType, itemsize


class BufferKind(StrEnum):
    INPUT = "input"
    """Written by the host before each step; named after the graph's input."""
    ARENA = "arena"
    """Scratch between kernels of one step, at `offset` in the arena."""
    CACHE = "cache"
    """Kept between steps; zero at first."""
    OUTPUT = "output"
    """Read by the host after each step."""


@dataclass(frozen=True, slots=True)
class DimRange:
    """A dim and its bounds, both inclusive."""

    name: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class KvGeometry:
    """What a position of the cache holds: a key and a value of `head_dim` for each layer and head."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: DType

    def bytes_per_token(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_dim * itemsize(self.dtype)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    vocab_size: int
    max_context: int
    block_size: int
    max_batched_tokens: int
    max_sequences: int
    kv: KvGeometry


@dataclass(frozen=True, slots=True)
class FileEntry:
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor at `offset` of `file`. `shape` is its own, before packing; packed matrices are [N, K]."""

    name: str
    file: str
    offset: int
    nbytes: int
    dtype: DType
    layout: WeightLayout
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that kernels share. `shape` is sizes over the dims; `offset` counts bytes of the arena."""

    name: str
    kind: BufferKind
    dtype: DType
    shape: tuple[str, ...]
    offset: int = 0


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """A kernel's symbol and the buffers it gets, in order. `stage_end` puts a barrier after it."""

    kernel: str
    args: tuple[str, ...]
    stage_end: bool


@dataclass(frozen=True, slots=True)
class Bucket:
    """The launches of a step whose dims lie in `ranges`; a dim that is not named may have any value."""

    ranges: tuple[DimRange, ...]
    launches: tuple[KernelLaunch, ...]


@dataclass(frozen=True, slots=True)
class LevelProgram:
    """The program of one CPU level, its kernels at `kernels_path(level)`. The first fitting bucket runs."""

    level: str
    compiler: str
    scratch_bytes: int
    buffers: tuple[Buffer, ...]
    buckets: tuple[Bucket, ...]

    def names_used(self) -> frozenset[str]:
        """Every name that a launch passes to a kernel."""
        return frozenset(name for b in self.buckets for launch in b.launches for name in launch.args)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The whole description. `dims` fixes the order of the array that kernels read sizes from."""

    target: str
    dims: tuple[DimRange, ...]
    model: ModelFacts
    files: Mapping[str, FileEntry]
    weights: tuple[Weight, ...]
    programs: tuple[LevelProgram, ...]


MANIFEST_FILE = "manifest.json"
REPORT_FILE = "report.json"
RECEIPT_FILE = "receipt.json"


def kernels_path(level: str) -> str:
    """The artifact's file that holds a level's kernels."""
    return f"kernels/{level}.so"
