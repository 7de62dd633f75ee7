"""What a client sends for triage besides names, sizes and config: the index and the weight files' headers."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from compiler.checkpoint import gguf, safetensors
from compiler.checkpoint.errors import ProblemCode
from compiler.checkpoint.index import INDEX_NAME, parse_index
from compiler.checkpoint.inspect import read_json
from compiler.checkpoint.selection import CheckpointKind, select_weights


def read_heads(root: Path, names: Collection[str]) -> dict[str, bytes]:
    """The header bytes of the weight files among `names` in folder `root`, and the shard index as it stands.

    Raises:
        CheckpointError: what a weight file's first bytes or the choice of weight files already give away.
    """
    heads: dict[str, bytes] = {}
    weight_map = None
    if INDEX_NAME in names:
        weight_map = parse_index(read_json(root / INDEX_NAME, ProblemCode.BAD_INDEX))
        heads[INDEX_NAME] = (root / INDEX_NAME).read_bytes()
    selection = select_weights(names, weight_map)
    read = gguf.read_gguf_head if selection.kind is CheckpointKind.GGUF else safetensors.read_head
    for name in selection.files:
        heads[name] = read(root / name, name)
    return heads
