"""How a Hugging Face `config.json` becomes a `ModelConfig`.

Every dialect that published checkpoints use is read; what would change the arithmetic and is not built is
refused by name, never ignored. What is one family's own stands in `families.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compiler.checkpoint import families
from compiler.checkpoint.config import Architecture, ModelConfig, check_heads
from compiler.checkpoint.errors import CheckpointError, Problem, ProblemCode
from compiler.checkpoint.fields import Fields
from compiler.checkpoint.strict_json import shown

_READERS: Mapping[Architecture, Callable[[Fields], ModelConfig]] = {
    Architecture.LLAMA: families.read_llama,
    Architecture.MISTRAL: families.read_mistral,
    Architecture.QWEN2: families.read_qwen2,
    Architecture.QWEN3: families.read_qwen3,
    Architecture.GEMMA2: families.read_gemma2,
    Architecture.GPT2: families.read_gpt2,
}
_MODEL_TYPES = {
    "llama": Architecture.LLAMA,
    "mistral": Architecture.MISTRAL,
    "qwen2": Architecture.QWEN2,
    "qwen3": Architecture.QWEN3,
    "gemma2": Architecture.GEMMA2,
    "gpt2": Architecture.GPT2,
}


def config_from_hf(raw: Mapping[str, object], where: str = "config.json") -> ModelConfig:
    """Read a Hugging Face config.

    Raises:
        CheckpointError: every field that is missing, malformed or unsupported, at once. Codes: `bad_config`,
            `unknown_architecture`, `unsupported_config`.
    """
    architecture = _architecture(raw, where)
    fields = Fields(raw, where)
    _refuse_quantised(fields)
    config = _READERS[architecture](fields)
    check_heads(config, fields)
    fields.finish()
    return config


def _architecture(raw: Mapping[str, object], where: str) -> Architecture:
    names = raw.get("architectures")
    if isinstance(names, list) and len(names) == 1 and names[0] in list(Architecture):
        return Architecture(names[0])
    kind = raw.get("model_type")
    if not names and isinstance(kind, str) and kind in _MODEL_TYPES:
        return _MODEL_TYPES[kind]
    *others, last = Architecture
    message = (
        f"{where}: architecture {shown(names if names else kind)} is not supported; "
        f"{', '.join(others)} and {last} are"
    )
    raise CheckpointError([Problem(ProblemCode.UNKNOWN_ARCHITECTURE, message, "architectures")])


def _refuse_quantised(fields: Fields) -> None:
    stated = fields.raw.get("quantization_config")
    if stated:
        method = stated.get("quant_method") if isinstance(stated, Mapping) else stated
        message = f"quantization_config {shown(method)} is not supported; upload unquantised weights or GGUF"
        fields.note(ProblemCode.UNSUPPORTED_CONFIG, message, "quantization_config")
