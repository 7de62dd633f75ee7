"""Judge an upload before its bytes arrive: from names, sizes, the config and the weight files' headers.

Pure: the caller has no file yet. What only the bytes show, `inspect_directory` finds once they are there.
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler.checkpoint import gguf, safetensors
from compiler.checkpoint.config import ModelConfig
from compiler.checkpoint.errors import CheckpointError, Problem, ProblemCode, capped, refusal
from compiler.checkpoint.gguf import GgufFile
from compiler.checkpoint.gguf_model import config_from_gguf
from compiler.checkpoint.hf_config import config_from_hf
from compiler.checkpoint.index import INDEX_NAME, parse_index
from compiler.checkpoint.inspect import CONFIG_NAME
from compiler.checkpoint.layout import TensorEntry
from compiler.checkpoint.match import Stored, canonical, match, shard_tensors
from compiler.checkpoint.names import MAX_FILES, check_names
from compiler.checkpoint.selection import CheckpointKind, Selection, select_weights
from compiler.checkpoint.strict_json import parse_object

TOKENIZER_NAME = "tokenizer.json"
Header = bytes | Mapping[str, object]
"""The first bytes of a weight file (up to its data), or a safetensors header or shard index as JSON."""


def triage(
    files: Mapping[str, int],
    config: Mapping[str, object] | None,
    headers: Mapping[str, Header] | None = None,
) -> tuple[Problem, ...]:
    """Every problem that can be told now, at most `MAX_PROBLEMS`; empty means that the upload may start.

    `files` maps names to sizes in bytes; `config` is the parsed config.json; `headers` holds, by file name,
    the headers of weight files and the shard index. What is not sent is not judged.
    """
    if len(files) > MAX_FILES:
        message = f"{len(files)} files; a checkpoint has at most {MAX_FILES}"
        return (Problem(ProblemCode.TOO_MANY_FILES, message),)
    problems = check_names(files)
    problems += _check_sizes(files)
    return capped(problems + _check_weights(files, config, headers or {}))


def _check_weights(
    files: Mapping[str, int], config: Mapping[str, object] | None, headers: Mapping[str, Header]
) -> list[Problem]:
    if INDEX_NAME in files and INDEX_NAME not in headers:
        return _check_companions(files, config) + _triage_config(config)[1]
    try:
        selection = select_weights(files, _weight_map(files, headers))
    except CheckpointError as error:
        if any(name.endswith(".gguf") for name in files):
            return list(error.problems)
        return [*error.problems, *_check_companions(files, config), *_triage_config(config)[1]]
    if selection.kind is CheckpointKind.GGUF:
        return _triage_gguf(files, selection, headers)
    return _check_companions(files, config) + _triage_safetensors(files, selection, config, headers)


def _check_sizes(files: Mapping[str, int]) -> list[Problem]:
    return [
        Problem(ProblemCode.EMPTY_FILE, f"{name[:200]} is empty", name[:200])
        for name, size in files.items()
        if size <= 0
    ]


def _weight_map(files: Mapping[str, int], headers: Mapping[str, Header]) -> dict[str, str] | None:
    if INDEX_NAME not in files:
        return None
    raw = headers[INDEX_NAME]
    if isinstance(raw, bytes):
        raw = parse_object(raw, INDEX_NAME, ProblemCode.BAD_INDEX)
    return parse_index(raw)


def _check_companions(files: Mapping[str, int], config: Mapping[str, object] | None) -> list[Problem]:
    """A safetensors checkpoint needs its config and its fast tokenizer beside the weights."""
    problems: list[Problem] = []
    if CONFIG_NAME not in files and config is None:
        problems.append(Problem(ProblemCode.MISSING_CONFIG, f"{CONFIG_NAME} is missing", CONFIG_NAME))
    if TOKENIZER_NAME not in files:
        hint = ""
        if "tokenizer.model" in files or "vocab.json" in files:
            hint = "; load the slow tokenizer with transformers and save it with `save_pretrained` to get one"
        message = f"{TOKENIZER_NAME} is missing{hint}"
        problems.append(Problem(ProblemCode.MISSING_TOKENIZER, message, TOKENIZER_NAME))
    return problems


def _triage_safetensors(
    files: Mapping[str, int],
    selection: Selection,
    config: Mapping[str, object] | None,
    headers: Mapping[str, Header],
) -> list[Problem]:
    model, problems = _triage_config(config)
    stored: list[Stored] = []
    sent = [name for name in selection.files if name in headers]
    for name in sent:
        try:
            stored += shard_tensors(selection, name, _entries(headers[name], files[name], name))
        except CheckpointError as error:
            problems += error.problems
    if model is None or problems or len(sent) < len(selection.files):
        return problems
    found, problems = canonical(selection.kind, model, stored)
    return problems + match(selection.kind, model, found)


def _triage_config(config: Mapping[str, object] | None) -> tuple[ModelConfig | None, list[Problem]]:
    if config is None:
        return None, []
    try:
        return config_from_hf(config), []
    except CheckpointError as error:
        return None, list(error.problems)


def _entries(header: Header, size: int, name: str) -> dict[str, TensorEntry]:
    if isinstance(header, bytes):
        return safetensors.parse_header(header, size, name)
    return safetensors.check_header(header, size, name)


def _triage_gguf(
    files: Mapping[str, int], selection: Selection, headers: Mapping[str, Header]
) -> list[Problem]:
    (name,) = selection.files
    header = headers.get(name)
    if header is None:
        return []
    try:
        if not isinstance(header, bytes):
            raise refusal(ProblemCode.BAD_HEADER, f"{name}: a GGUF header is sent as bytes", name)
        file: GgufFile = gguf.parse_gguf(header, files[name], name)
        model = config_from_gguf(file, name)
    except CheckpointError as error:
        return list(error.problems)
    found, problems = canonical(
        selection.kind, model, (Stored(name, tensor, entry) for tensor, entry in file.tensors.items())
    )
    return problems + match(selection.kind, model, found)
