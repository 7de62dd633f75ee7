"""Which files hold the weights: one GGUF file, one safetensors file, or the shards of an index."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from compiler.checkpoint.errors import CheckpointError, Problem, ProblemCode, refusal
from compiler.checkpoint.index import INDEX_NAME
from compiler.checkpoint.names import is_numbered_shard, is_pickle_name, pickle_problem

SINGLE_NAME = "model.safetensors"


class CheckpointKind(StrEnum):
    SAFETENSORS = "safetensors"
    GGUF = "gguf"


@dataclass(frozen=True, slots=True)
class Selection:
    """The weight files to read. `weight_map` (tensor to file) is present when an index decides."""

    kind: CheckpointKind
    files: tuple[str, ...]
    weight_map: Mapping[str, str] | None = None


def select_weights(names: Collection[str], weight_map: Mapping[str, str] | None) -> Selection:
    """Choose the weight files among `names`; `weight_map` is the parsed index, when there is one.

    Raises:
        CheckpointError: `missing_shard` (one each), `missing_weights`, `ambiguous_weights`,
            `missing_index`, `unsupported_gguf` (a split file), `unexpected_pickle` (nothing else is there).
    """
    if weight_map is not None:
        return _by_index(names, weight_map)
    top = sorted(name for name in names if "/" not in name)
    tensors = [name for name in top if name.endswith(".safetensors")]
    ggufs = [name for name in top if name.endswith(".gguf")]
    if SINGLE_NAME in tensors and not ggufs:
        return Selection(CheckpointKind.SAFETENSORS, (SINGLE_NAME,))
    if any(is_numbered_shard(name) for name in tensors):
        message = f"the weights are in {len(tensors)} numbered files, but {INDEX_NAME} is missing"
        raise refusal(ProblemCode.MISSING_INDEX, message, INDEX_NAME)
    found = tensors + ggufs
    if len(found) > 1:
        message = f"several weight files ({', '.join(found[:5])}); upload the one to compile"
        raise refusal(ProblemCode.AMBIGUOUS_WEIGHTS, message, found[0])
    if not found:
        raise _none_found(top)
    if is_numbered_shard(found[0]):
        message = f"{found[0]} is one part of a split GGUF; merge the parts (`gguf-split --merge`) first"
        raise refusal(ProblemCode.UNSUPPORTED_GGUF, message, found[0])
    return Selection(CheckpointKind.GGUF if ggufs else CheckpointKind.SAFETENSORS, (found[0],))


def _by_index(names: Collection[str], weight_map: Mapping[str, str]) -> Selection:
    shards = tuple(dict.fromkeys(weight_map.values()))
    present = set(names)
    missing = [shard for shard in shards if shard not in present]
    if missing:
        raise CheckpointError(
            Problem(ProblemCode.MISSING_SHARD, f"{INDEX_NAME} names {shard}, which is missing", shard)
            for shard in missing
        )
    return Selection(CheckpointKind.SAFETENSORS, shards, weight_map)


def _none_found(names: Collection[str]) -> CheckpointError:
    pickles = [pickle_problem(name) for name in names if is_pickle_name(name)]
    if pickles:
        return CheckpointError(pickles)
    message = f"no weights found; {SINGLE_NAME}, {INDEX_NAME} with its shards, or one .gguf file is needed"
    return refusal(ProblemCode.MISSING_WEIGHTS, message)
