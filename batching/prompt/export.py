"""Write a revision's tokenizer folder from a checkpoint: checked, normalised, and complete in itself.

The folder holds tokenizer.json, tokenizer_config.json (with the chat template), generation_config.json,
config.json and candela.json. The worker writes it, gateway and replica read it through `PromptProfile`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from batching.prompt.chat import ChatTemplate
from batching.prompt.errors import ChatTemplateError, UnsupportedTokenizer
from batching.prompt.from_gguf import END_OF_TURN, TokenizerFiles, tokenizer_files
from batching.prompt.profile import FACTS_NAME, PromptFacts, read_special, read_templates
from batching.prompt.tokenizer import TOKENIZER_NAME, Tokenizer
from common.errors import Problem, UploadRefused

MAX_TOKENIZER_BYTES = 128 << 20
_MAX_JSON_BYTES = 16 << 20
_LFS = b"version https://git-lfs.github.com/spec/"
_CONTEXT_FIELDS = ("max_position_embeddings", "n_positions")
"""What configs call the longest context; the second is GPT-2's."""
_BUILT_IN_CONTEXT = 2048
_PROBE = "A probe: 1st 2nd \u0661\u0662\u0663, caf\u00e9 \U0001f600\n\t<|x|>  end"


def write_tokenizer_dir(
    checkpoint_dir: Path, out_dir: Path, gguf_metadata: Mapping[str, object] | None = None
) -> PromptFacts:
    """Write the tokenizer folder of a checkpoint. `gguf_metadata` is a GGUF checkpoint's metadata, else none.

    Raises:
        UploadRefused: codes `missing_tokenizer`, `lfs_pointer`, `bad_config`, `unsupported_tokenizer`,
            `chat_template_error`, `tokenizer_mismatch`.
    """
    try:
        files = _from_folder(checkpoint_dir) if gguf_metadata is None else tokenizer_files(gguf_metadata)
        source = json.dumps(files.tokenizer, ensure_ascii=False)
        facts = _facts(files, source)
        for template in read_templates(files.tokenizer_config).values():
            ChatTemplate(template, {})
    except (UnsupportedTokenizer, ChatTemplateError) as error:
        raise _refused(error.code, str(error), TOKENIZER_NAME) from error
    out_dir.mkdir(parents=True, exist_ok=True)
    (out_dir / TOKENIZER_NAME).write_text(source, encoding="utf-8")
    _write(out_dir / "tokenizer_config.json", files.tokenizer_config)
    _write(out_dir / "generation_config.json", files.generation_config)
    _write(out_dir / "config.json", files.config)
    _write(out_dir / FACTS_NAME, asdict(facts))
    return facts


def _from_folder(folder: Path) -> TokenizerFiles:
    if not (folder / TOKENIZER_NAME).is_file():
        hint = ""
        if (folder / "tokenizer.model").is_file() or (folder / "vocab.json").is_file():
            hint = "; load the slow tokenizer with transformers and save it with `save_pretrained` to get one"
        raise _refused("missing_tokenizer", f"{TOKENIZER_NAME} is missing{hint}", TOKENIZER_NAME)
    config = _read(folder / "tokenizer_config.json")
    for name, value in _read(folder / "special_tokens_map.json").items():
        config.setdefault(name, value)
    template = folder / "chat_template.jinja"
    if template.is_file():
        config["chat_template"] = _text(template, _MAX_JSON_BYTES)
    return TokenizerFiles(
        _read(folder / TOKENIZER_NAME, MAX_TOKENIZER_BYTES),
        config,
        _read(folder / "generation_config.json"),
        _read(folder / "config.json"),
    )


def _facts(files: TokenizerFiles, source: str) -> PromptFacts:
    special = read_special(files.tokenizer_config)
    templates = "\n".join(read_templates(files.tokenizer_config).values())
    tokenizer = Tokenizer(source, template_text=templates)
    bos_id = tokenizer.token_id(special["bos_token"]) if "bos_token" in special else None
    bos_id = _first_int(files.config.get("bos_token_id")) if bos_id is None else bos_id
    vocab_size = files.config.get("vocab_size")
    vocab_size = vocab_size if isinstance(vocab_size, int) else tokenizer.id_count
    context = next((files.config[name] for name in _CONTEXT_FIELDS if files.config.get(name)), None)
    stop_ids = _stop_ids(files, tokenizer, special, templates)
    tokenizer.encode(_PROBE)
    if tokenizer.id_count > vocab_size or any(i >= vocab_size for i in stop_ids):
        message = f"the tokenizer has {tokenizer.id_count} ids; the model has rows for {vocab_size}"
        raise _refused("tokenizer_mismatch", message, TOKENIZER_NAME)
    return PromptFacts(
        stop_ids=stop_ids,
        bos_id=bos_id,
        add_bos=bos_id is not None and _adds_bos(files, tokenizer, bos_id),
        context_length=context if isinstance(context, int) else _BUILT_IN_CONTEXT,
        vocab_size=vocab_size,
    )


def _adds_bos(files: TokenizerFiles, tokenizer: Tokenizer, bos_id: int) -> bool:
    """The config's flag if it has one, else what the tokenizer's own post-processor does."""
    stated = files.tokenizer_config.get("add_bos_token")
    return stated if isinstance(stated, bool) else tokenizer.wraps_with(bos_id)


def _stop_ids(
    files: TokenizerFiles, tokenizer: Tokenizer, special: Mapping[str, str], templates: str
) -> tuple[int, ...]:
    """Every id that ends an answer: both configs', the tokenizer's eos, the template's ends of turn."""
    configs = (files.config, files.generation_config)
    ids = [i for config in configs for i in _ints(config.get("eos_token_id"))]
    names = [special["eos_token"]] if "eos_token" in special else []
    names += [name for name in END_OF_TURN if name in tokenizer.control_tokens and name in templates]
    found = (tokenizer.token_id(name) for name in names)
    return tuple(sorted({*ids, *(i for i in found if i is not None)}))


def _ints(value: object) -> list[int]:
    listed = value if isinstance(value, list) else [value]
    return [i for i in listed if isinstance(i, int) and not isinstance(i, bool) and i >= 0]


def _first_int(value: object) -> int | None:
    return next(iter(_ints(value)), None)


def _read(path: Path, limit: int = _MAX_JSON_BYTES) -> dict[str, object]:
    """A JSON object; an absent file is an empty one."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(_text(path, limit))
    except (ValueError, RecursionError) as error:
        raise _refused("bad_config", f"{path.name} is not valid JSON: {error}", path.name) from error
    if not isinstance(value, dict):
        raise _refused("bad_config", f"{path.name} must hold a JSON object", path.name)
    return value


def _text(path: Path, limit: int) -> str:
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if data.startswith(_LFS):
        message = (
            f"{path.name} is a Git LFS pointer, not the file itself; run `git lfs pull` and upload again"
        )
        raise _refused("lfs_pointer", message, path.name)
    if len(data) > limit:
        raise _refused("bad_config", f"{path.name} has over {limit} bytes", path.name)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _refused("bad_config", f"{path.name} is not UTF-8: {error}", path.name) from error


def _write(path: Path, value: Mapping[str, object]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _refused(code: str, message: str, where: str) -> UploadRefused:
    return UploadRefused((Problem(code, message, where),))
