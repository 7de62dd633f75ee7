"""The result of a compile: what it holds, and how it is read. `compiler.artifact.writer` writes one."""

from compiler.artifact.codec import decode_manifest, encode_manifest
from compiler.artifact.errors import ArtifactError
from compiler.artifact.layouts import WeightLayout
from compiler.artifact.manifest import (
    Bucket,
    Buffer,
    BufferKind,
    DimRange,
    FileEntry,
    KernelLaunch,
    KvGeometry,
    LevelProgram,
    Manifest,
    ModelFacts,
    Weight,
    kernels_path,
)
from compiler.artifact.reader import Artifact, open_artifact

__all__ = [
    "Artifact",
    "ArtifactError",
    "Bucket",
    "Buffer",
    "BufferKind",
    "DimRange",
    "FileEntry",
    "KernelLaunch",
    "KvGeometry",
    "LevelProgram",
    "Manifest",
    "ModelFacts",
    "Weight",
    "WeightLayout",
    "decode_manifest",
    "encode_manifest",
    "kernels_path",
    "open_artifact",
]
