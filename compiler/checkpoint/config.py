"""What a decoder is, whatever its family and however its checkpoint says so: `ModelConfig`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from compiler.checkpoint.errors import ProblemCode
from compiler.checkpoint.fields import Fields
from compiler.checkpoint.rope import Rope

MAX_LAYERS = 512
MAX_WIDTH = 1 << 20
MAX_VOCAB = 1 << 22
MAX_CONTEXT = 1 << 26


class Architecture(StrEnum):
    """Hugging Face classes that are served."""

    LLAMA = "LlamaForCausalLM"
    MISTRAL = "MistralForCausalLM"
    QWEN2 = "Qwen2ForCausalLM"
    QWEN3 = "Qwen3ForCausalLM"
    GEMMA2 = "Gemma2ForCausalLM"
    GPT2 = "GPT2LMHeadModel"


class Activation(StrEnum):
    """What an MLP bends its values with, under our names."""

    SILU = "silu"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and switches of one decoder, under the names that Hugging Face's Llama gives them.

    `rms_norm_eps` is that of every norm, LayerNorm too. `attention_bias` is of the projections to queries,
    keys and values, `output_bias` of the one that follows. `windows` holds for each layer how many positions
    a token sees, its own included (none: all); empty means no layer has one. `query_scale` multiplies scores
    (none: 1 / sqrt(head_dim)). `norm_offset` is added to the weights of RMS norms, and `stores_in_out` says
    that linear weights lie [in, out]: both depend on the file, not the model.
    """

    architecture: Architecture
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position_embeddings: int
    rope: Rope = field(default_factory=Rope)
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    activation: Activation = Activation.SILU
    windows: tuple[int | None, ...] = ()
    query_scale: float | None = None
    attention_softcap: float | None = None
    final_softcap: float | None = None
    norm_offset: float = 0.0
    stores_in_out: bool = False
    dtype: str = "float32"
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    def window(self, layer: int) -> int | None:
        """Positions that a token of `layer` sees, its own included; none means all up to its own."""
        return self.windows[layer] if self.windows else None


def check_heads(config: ModelConfig, fields: Fields) -> None:
    """Note what attention cannot be built from, in the names that `fields` reads."""
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    if not fields.has("head_dim") and config.hidden_size % max(heads, 1):
        fields.note(
            ProblemCode.BAD_CONFIG,
            f"hidden_size {config.hidden_size} is not a multiple of num_attention_heads {heads}",
            "hidden_size",
        )
    if kv_heads and heads % kv_heads:
        fields.note(
            ProblemCode.BAD_CONFIG,
            f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}",
            "num_key_value_heads",
        )
    if config.head_dim % 2 and config.architecture is not Architecture.GPT2:
        fields.note(
            ProblemCode.UNSUPPORTED_CONFIG, f"head_dim {config.head_dim} must be even to rotate", "head_dim"
        )
