"""What a compile attests about its artifact: digests of everything that went in, and the error it achieved.

It is one of the artifact's files, so the manifest's digest of it, and a signature over the manifest, cover
it. `compiler.pipeline` writes it, `compiler.recheck` checks it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.artifact.codec import decode_body, encode_body
from compiler.artifact.manifest import RECEIPT_FILE

_FORMAT = "candela-receipt"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class LevelReceipt:
    """One CPU level: digests of its shared object and of each kernel's source, and its largest error.

    `error` is the largest difference of a logit from the definitions' reference, relative to the largest
    logit, as a decimal text; `tolerance` is what was allowed.
    """

    object: str
    sources: Mapping[str, str]
    error: str
    tolerance: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """`options` are the compile's, as texts, seed and budget among them; digests are sha256 in hex.

    `graph` is that of the graph's text; `weights` maps each weight of the graph to the digest of its values
    as they were read, before packing.
    """

    compiler: str
    toolchain: str
    options: Mapping[str, str]
    graph: str
    weights: Mapping[str, str]
    levels: Mapping[str, LevelReceipt]


def encode_receipt(receipt: Receipt) -> bytes:
    return encode_body(receipt, _FORMAT, _VERSION)


def decode_receipt(data: bytes) -> Receipt:
    """Raises: `ArtifactError` where it is damaged, or no receipt of this version."""
    return decode_body(data, Receipt, _FORMAT, _VERSION, RECEIPT_FILE)


def text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def array_digest(array: npt.NDArray[Any]) -> str:
    """Over element type, shape and values, whatever the memory order."""
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data if array.size else b"")
    return digest.hexdigest()
