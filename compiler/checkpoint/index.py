"""The shard index `model.safetensors.index.json`: the file of each tensor. Only files it names are read."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.checkpoint.errors import CheckpointError, Problem, ProblemCode, refusal
from compiler.checkpoint.layout import MAX_TENSORS
from compiler.checkpoint.names import name_fault
from compiler.checkpoint.strict_json import shown

INDEX_NAME = "model.safetensors.index.json"
MAX_SHARDS = 1000


def parse_index(raw: Mapping[str, object], where: str = INDEX_NAME) -> dict[str, str]:
    """The `weight_map`: tensor name to file name.

    Raises:
        CheckpointError: `bad_index` for a malformed map, `bad_name` for each file name that leaves the
            folder or is no safetensors file.
    """
    weight_map = raw.get("weight_map")
    if not isinstance(weight_map, Mapping) or not weight_map or len(weight_map) > MAX_TENSORS:
        message = f"{where}: weight_map must name 1 to {MAX_TENSORS} tensors and their files"
        raise refusal(ProblemCode.BAD_INDEX, message, where)
    if not all(isinstance(name, str) and isinstance(file, str) for name, file in weight_map.items()):
        raise refusal(ProblemCode.BAD_INDEX, f"{where}: weight_map must map names to file names", where)
    shards = tuple(dict.fromkeys(weight_map.values()))
    if len(shards) > MAX_SHARDS:
        message = f"{where} names {len(shards)} files; at most {MAX_SHARDS} are read"
        raise refusal(ProblemCode.BAD_INDEX, message, where)
    problems = [problem for shard in shards if (problem := _shard_problem(shard, where))]
    if problems:
        raise CheckpointError(problems)
    return dict(weight_map)


def _shard_problem(shard: str, where: str) -> Problem | None:
    fault = name_fault(shard)
    if fault is None and not shard.endswith(".safetensors"):
        fault = "is not a .safetensors file"
    if fault is None:
        return None
    return Problem(ProblemCode.BAD_NAME, f"{where} names a file {shown(shard)} that {fault}", where)
