"""Fields that several families' configs share: rotary embeddings, windows, activations, the stored dtype."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.checkpoint.config import MAX_CONTEXT, Activation
from compiler.checkpoint.errors import ProblemCode
from compiler.checkpoint.fields import Fields
from compiler.checkpoint.rope import Rope, RopeKind
from compiler.checkpoint.strict_json import shown

FULL, SLIDING = "full_attention", "sliding_attention"
_ACTIVATIONS = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "gelu": Activation.GELU,
    "gelu_new": Activation.GELU_TANH,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
}


def activation(fields: Fields, name: str, absent: Activation) -> Activation:
    """The activation that the field `name` says."""
    said = fields.raw.get(name)
    if said is None:
        return absent
    if isinstance(said, str) and said in _ACTIVATIONS:
        return _ACTIVATIONS[said]
    *others, last = _ACTIVATIONS
    message = f"{name} {shown(said)} is not supported; {', '.join(others)} and {last} are"
    fields.note(ProblemCode.UNSUPPORTED_CONFIG, message, name)
    return absent


def layer_windows(
    fields: Fields, window: int | None, context: int, kinds: tuple[str, ...]
) -> tuple[int | None, ...]:
    """For each layer what it sees. `kinds` says what a layer is where the config has no `layer_types`.

    A window as long as the context is none at all.
    """
    stated = fields.raw.get("layer_types")
    if stated is not None:
        is_known = isinstance(stated, list) and all(kind in (FULL, SLIDING) for kind in stated)
        if not is_known or not isinstance(stated, list) or len(stated) != len(kinds):
            message = f"layer_types must name {FULL} or {SLIDING} for each of {len(kinds)} layers"
            fields.note(ProblemCode.UNSUPPORTED_CONFIG, message, "layer_types")
            return ()
        kinds = tuple(stated)
    if window is None or window >= context or SLIDING not in kinds:
        return ()
    return tuple(window if kind == SLIDING else None for kind in kinds)


def sliding_window(fields: Fields, absent: int | None) -> int | None:
    """`sliding_window`, where null means none."""
    if fields.raw.get("sliding_window", absent) is None:
        return None
    return fields.integer_or("sliding_window", 1, MAX_CONTEXT, absent=absent or 1)


def refuse_windows(fields: Fields) -> None:
    """Note layer types of a family that has no windowed layers."""
    stated = fields.raw.get("layer_types")
    if isinstance(stated, list) and any(kind != FULL for kind in stated):
        message = f"layer_types other than {FULL} are not supported"
        fields.note(ProblemCode.UNSUPPORTED_CONFIG, message, "layer_types")


def refuse_true(fields: Fields, *names: str) -> None:
    """Note switches that change the arithmetic and are not built."""
    for name in names:
        if fields.boolean(name, absent=False):
            message = f"{name} is not supported; it must be false"
            fields.note(ProblemCode.UNSUPPORTED_CONFIG, message, name)


def dtype_said(fields: Fields) -> str:
    """`dtype` is the new name of `torch_dtype`. What the maker says; the tensors' own types decide."""
    said = fields.raw.get("dtype") or fields.raw.get("torch_dtype") or "float32"
    return said.removeprefix("torch.") if isinstance(said, str) else "float32"


def read_rope(fields: Fields, context: int) -> Rope:
    """`rope_scaling` (with `type` or `rope_type`) and `rope_parameters`, as transformers reads them."""
    raw = fields.raw
    name = "rope_scaling" if raw.get("rope_scaling") else "rope_parameters"
    stated = raw.get(name) or {}
    if not isinstance(stated, Mapping):
        fields.note(ProblemCode.BAD_CONFIG, f"{name} must be an object", name)
        return Rope()
    inner = fields.nested(stated, name)
    theta = inner.positive("rope_theta", absent=fields.positive("rope_theta", absent=10000.0))
    partial = stated.get("partial_rotary_factor", raw.get("partial_rotary_factor"))
    if partial not in (None, 1, 1.0):
        fields.note(
            ProblemCode.UNSUPPORTED_CONFIG,
            f"partial_rotary_factor {shown(partial)} is not supported; 1.0 is",
            "partial_rotary_factor",
        )
    kind = stated.get("rope_type", stated.get("type", "default"))
    if kind == "default":
        return Rope(theta)
    if kind == "linear":
        return Rope(theta, RopeKind.LINEAR, factor=inner.positive("factor"))
    if kind == "llama3":
        return _llama3(fields, inner, theta, context)
    message = f"{name}: rope_type {shown(kind)} is not supported; default, linear and llama3 are"
    fields.note(ProblemCode.UNSUPPORTED_CONFIG, message, f"{name}.rope_type")
    return Rope(theta)


def _llama3(fields: Fields, inner: Fields, theta: float, context: int) -> Rope:
    outer = fields.raw.get("original_max_position_embeddings")
    source = fields if outer is not None else inner
    low, high = inner.positive("low_freq_factor"), inner.positive("high_freq_factor")
    if low >= high:
        message = f"low_freq_factor {low} must be below high_freq_factor {high}"
        inner.note(ProblemCode.BAD_CONFIG, message, "low_freq_factor")
    return Rope(
        theta,
        RopeKind.LLAMA3,
        factor=inner.positive("factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_position_embeddings=source.integer_or(
            "original_max_position_embeddings", 1, MAX_CONTEXT, absent=context
        ),
    )
