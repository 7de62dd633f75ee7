"""Checkpoints as found on disk or announced over REST: headers, configs, names. Standard library only."""

from compiler.checkpoint.config import Activation, Architecture, ModelConfig
from compiler.checkpoint.errors import CheckpointError, Problem, ProblemCode
from compiler.checkpoint.expected import expected_tensors
from compiler.checkpoint.gguf import GgufFile, GgufValue, parse_gguf, read_gguf
from compiler.checkpoint.heads import read_heads
from compiler.checkpoint.hf_config import config_from_hf
from compiler.checkpoint.index import INDEX_NAME, parse_index
from compiler.checkpoint.inspect import CheckpointInfo, TensorLocation, inspect_directory
from compiler.checkpoint.layout import TensorEntry
from compiler.checkpoint.rope import Rope, RopeKind, inverse_frequencies
from compiler.checkpoint.safetensors import parse_header
from compiler.checkpoint.selection import CheckpointKind
from compiler.checkpoint.sniff import sniff
from compiler.checkpoint.triage import Header, triage

__all__ = [
    "INDEX_NAME",
    "Activation",
    "Architecture",
    "CheckpointError",
    "CheckpointInfo",
    "CheckpointKind",
    "GgufFile",
    "GgufValue",
    "Header",
    "ModelConfig",
    "Problem",
    "ProblemCode",
    "Rope",
    "RopeKind",
    "TensorEntry",
    "TensorLocation",
    "config_from_hf",
    "expected_tensors",
    "inspect_directory",
    "inverse_frequencies",
    "parse_gguf",
    "parse_header",
    "parse_index",
    "read_gguf",
    "read_heads",
    "sniff",
    "triage",
]
