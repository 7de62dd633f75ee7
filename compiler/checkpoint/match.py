"""Compare the tensors that files hold with those that a config promises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from compiler.checkpoint.config import ModelConfig
from compiler.checkpoint.errors import CheckpointError, Problem, ProblemCode
from compiler.checkpoint.expected import HEAD, body_prefix, embedding_name, expected_tensors, is_ignored
from compiler.checkpoint.gguf_model import READABLE_TYPES, ROPE_DIVISORS
from compiler.checkpoint.gguf_names import canonical_name
from compiler.checkpoint.layout import TensorEntry
from compiler.checkpoint.selection import CheckpointKind, Selection
from compiler.checkpoint.strict_json import shown

FLOAT_DTYPES = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor as its file names it, and where it lies."""

    file: str
    name: str
    entry: TensorEntry


def shard_tensors(selection: Selection, file: str, entries: Mapping[str, TensorEntry]) -> list[Stored]:
    """The tensors that count from one safetensors file: all of it, or what the index places there.

    Raises:
        CheckpointError: `missing_tensor` for each one that the index places in this file in vain.
    """
    if selection.weight_map is None:
        return [Stored(file, name, entry) for name, entry in entries.items()]
    placed = [name for name, shard in selection.weight_map.items() if shard == file]
    missing = [name for name in placed if name not in entries]
    if missing:
        raise CheckpointError(
            Problem(
                ProblemCode.MISSING_TENSOR,
                f"{file} lacks tensor {shown(name)}, which the index places there",
                name,
            )
            for name in missing
        )
    return [Stored(file, name, entries[name]) for name in placed]


def canonical(
    kind: CheckpointKind, config: ModelConfig, stored: Iterable[Stored]
) -> tuple[dict[str, Stored], list[Problem]]:
    """The tensors under Hugging Face's names; buffers that loaders recompute are left out."""
    found: dict[str, Stored] = {}
    problems: list[Problem] = []
    everything = list(stored)
    names = {item.name for item in everything}
    embedding, prefix = embedding_name(config), body_prefix(config)
    is_bare = embedding not in names and embedding.removeprefix(prefix) in names
    for item in everything:
        name = _canonical(kind, config, item.name, is_bare)
        if name is None:
            message = f"{item.file}: tensor {shown(item.name)} has no place in a model of this family"
            problems.append(Problem(ProblemCode.UNEXPECTED_TENSOR, message, item.name))
        elif name in found:
            message = f"tensor {shown(name)} is stored twice, in {found[name].file} and {item.file}"
            problems.append(Problem(ProblemCode.DUPLICATE_TENSOR, message, item.name))
        elif not is_ignored(name) and name != ROPE_DIVISORS:
            found[name] = item
    return found, problems


def match(kind: CheckpointKind, config: ModelConfig, found: Mapping[str, Stored]) -> list[Problem]:
    """Every tensor that is missing, unexpected, of another shape, or of a type that is not read.

    A tied model may store its head all the same; whether it equals the embedding only the bytes show.
    """
    expected = expected_tensors(config)
    problems = [_missing(name, config) for name in expected if name not in found]
    readable = READABLE_TYPES if kind is CheckpointKind.GGUF else FLOAT_DTYPES
    for name, item in found.items():
        shape = expected[embedding_name(config)] if name == HEAD else expected.get(name)
        if shape is None:
            message = f"{item.file}: tensor {shown(name)} has no place in the model that the config describes"
            problems.append(Problem(ProblemCode.UNEXPECTED_TENSOR, message, name))
        elif item.entry.shape != shape:
            message = f"{item.file}: tensor {name} has shape {item.entry.shape}; the config needs {shape}"
            problems.append(Problem(ProblemCode.WRONG_SHAPE, message, name))
        elif item.entry.dtype not in readable:
            message = f"{item.file}: tensor {name} is {item.entry.dtype}; {', '.join(readable)} are read"
            problems.append(Problem(ProblemCode.UNSUPPORTED_DTYPE, message, name))
    return problems


def _canonical(kind: CheckpointKind, config: ModelConfig, name: str, is_bare: bool) -> str | None:
    if kind is CheckpointKind.GGUF:
        return name if name == ROPE_DIVISORS else canonical_name(name, config)
    prefix = body_prefix(config)
    if name == f"{prefix}{HEAD}":
        return HEAD
    if is_bare and not name.startswith("lm_head."):
        return f"{prefix}{name}"
    return name


def _missing(name: str, config: ModelConfig) -> Problem:
    hint = "; it is needed unless tie_word_embeddings is true" if name == HEAD else ""
    return Problem(ProblemCode.MISSING_TENSOR, f"tensor {name} is missing{hint}", name)
