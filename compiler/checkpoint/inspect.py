"""What a checkpoint folder says about itself: its config, and where each tensor's bytes lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compiler.checkpoint import gguf, safetensors
from compiler.checkpoint.config import ModelConfig
from compiler.checkpoint.errors import CheckpointError, Problem, ProblemCode, refusal
from compiler.checkpoint.expected import HEAD, embedding_name
from compiler.checkpoint.gguf import GgufFile, GgufValue
from compiler.checkpoint.gguf_model import ROPE_DIVISORS, config_from_gguf
from compiler.checkpoint.gguf_names import interleaved_heads
from compiler.checkpoint.hf_config import config_from_hf
from compiler.checkpoint.index import INDEX_NAME, parse_index
from compiler.checkpoint.match import Stored, canonical, match, shard_tensors
from compiler.checkpoint.names import MAX_FILES
from compiler.checkpoint.selection import CheckpointKind, Selection, select_weights
from compiler.checkpoint.sniff import SNIFF_BYTES, sniff
from compiler.checkpoint.strict_json import MAX_JSON_BYTES, parse_object

CONFIG_NAME = "config.json"
_COMPARE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TensorLocation:
    """Where a tensor's bytes lie and how to read them. `shape` is row-major; quantised types run along rows.

    `interleaved_heads` > 0: the rows of each of that many heads are interleaved and must be put back.
    """

    file: Path
    offset: int
    nbytes: int
    dtype: str
    shape: tuple[int, ...]
    interleaved_heads: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A checkpoint that holds exactly what its config promises; `tensors` has Hugging Face's names.

    `files` are the weight files; `gguf_metadata` is what a GGUF file carries besides tensors.
    """

    kind: CheckpointKind
    directory: Path
    config: ModelConfig
    tensors: Mapping[str, TensorLocation]
    files: tuple[Path, ...]
    gguf_metadata: Mapping[str, GgufValue] | None = None


def inspect_directory(path: Path) -> CheckpointInfo:
    """Check the checkpoint in folder `path` (or the single file `path`) and say where its tensors are.

    Reads headers, the config and, for a tied model that stores its head twice, both copies to compare them.

    Raises:
        CheckpointError: all problems that could be told apart, each naming its file, tensor or field.
    """
    root = path if path.is_dir() else path.parent
    names = sorted(_names(root)) if path.is_dir() else [path.name]
    weight_map = None
    if INDEX_NAME in names:
        weight_map = parse_index(read_json(root / INDEX_NAME, ProblemCode.BAD_INDEX))
    selection = select_weights(names, weight_map)
    if selection.kind is CheckpointKind.GGUF:
        return _inspect_gguf(root, selection.files[0])
    return _inspect_safetensors(root, selection, names)


def read_json(path: Path, code: ProblemCode) -> dict[str, object]:
    """Parse a JSON file of the checkpoint. Raises: `CheckpointError` with `code`, or what it is instead."""
    with path.open("rb") as file:
        data = file.read(MAX_JSON_BYTES + 1)
    problem = sniff(data[:SNIFF_BYTES], path.name)
    if problem is not None:
        raise CheckpointError([problem])
    return parse_object(data, path.name, code)


def _names(root: Path) -> list[str]:
    names: list[str] = []
    for path in root.iterdir():
        if path.is_file():
            names.append(path.name)
        if len(names) > MAX_FILES:
            message = f"{root.name} holds more than {MAX_FILES} files; that is no checkpoint"
            raise refusal(ProblemCode.TOO_MANY_FILES, message)
    return names


def _inspect_safetensors(root: Path, selection: Selection, names: list[str]) -> CheckpointInfo:
    problems: list[Problem] = []
    config = None
    try:
        if CONFIG_NAME not in names:
            raise refusal(ProblemCode.MISSING_CONFIG, f"{CONFIG_NAME} is missing", CONFIG_NAME)
        config = config_from_hf(read_json(root / CONFIG_NAME, ProblemCode.BAD_CONFIG))
    except CheckpointError as error:
        problems.extend(error.problems)
    stored: list[Stored] = []
    for file in selection.files:
        try:
            stored.extend(shard_tensors(selection, file, safetensors.read_header(root / file, file)))
        except CheckpointError as error:
            problems.extend(error.problems)
    if config is None or problems:
        raise CheckpointError(problems)
    return _finish(root, selection, config, stored)


def _inspect_gguf(root: Path, name: str) -> CheckpointInfo:
    file = gguf.read_gguf(root / name, name)
    config = config_from_gguf(file, name, _rope_divisors(root / name, file))
    stored = [Stored(name, tensor, entry) for tensor, entry in file.tensors.items()]
    return _finish(root, Selection(CheckpointKind.GGUF, (name,)), config, stored, file.metadata)


def _rope_divisors(path: Path, file: GgufFile) -> bytes | None:
    entry = file.tensors.get(ROPE_DIVISORS)
    if entry is None or entry.nbytes > _COMPARE_BYTES:
        return None
    with path.open("rb") as data:
        data.seek(entry.offset)
        return data.read(entry.nbytes)


def _finish(
    root: Path,
    selection: Selection,
    config: ModelConfig,
    stored: list[Stored],
    metadata: Mapping[str, GgufValue] | None = None,
) -> CheckpointInfo:
    found, problems = canonical(selection.kind, config, stored)
    problems += match(selection.kind, config, found)
    if problems:
        raise CheckpointError(problems)
    heads = interleaved_heads if selection.kind is CheckpointKind.GGUF else _no_heads
    tensors = {
        name: TensorLocation(
            root / item.file,
            item.entry.offset,
            item.entry.nbytes,
            item.entry.dtype,
            item.entry.shape,
            heads(name, config),
        )
        for name, item in found.items()
    }
    if config.tie_word_embeddings and HEAD in tensors:
        _check_equal(embedding_name(config), tensors[embedding_name(config)], tensors.pop(HEAD))
    files = tuple(root / file for file in selection.files)
    return CheckpointInfo(selection.kind, root, config, tensors, files, metadata)


def _no_heads(name: str, config: ModelConfig) -> int:
    return 0


def _check_equal(name: str, embedding: TensorLocation, head: TensorLocation) -> None:
    """A tied model's stored head must be the embedding's copy; else the file and its config disagree."""
    is_equal = embedding.dtype == head.dtype and embedding.nbytes == head.nbytes
    with embedding.file.open("rb") as left, head.file.open("rb") as right:
        left.seek(embedding.offset)
        right.seek(head.offset)
        rest = embedding.nbytes
        while is_equal and rest > 0:
            size = min(rest, _COMPARE_BYTES)
            is_equal = left.read(size) == right.read(size)
            rest -= size
    if not is_equal:
        message = (
            f"the config ties {HEAD} to {name}, but the files hold two different tensors; "
            "set tie_word_embeddings to false if the head is a matrix of its own"
        )
        raise refusal(ProblemCode.TIED_HEAD_DIFFERS, message, HEAD)
