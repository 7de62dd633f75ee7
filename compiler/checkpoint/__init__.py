"""Checkpoints as found on disk or announced over REST: headers, configs, names. Standard library only."""

from compiler.checkpoint.config import Architecture, ModelConfig, config_from_hf
from compiler.checkpoint.errors import CheckpointError, Problem, ProblemCode
from compiler.checkpoint.expected import expected_tensors
from compiler.checkpoint.rope import Rope, RopeKind, inverse_frequencies

__all__ = [
    "Architecture",
    "CheckpointError",
    "ModelConfig",
    "Problem",
    "ProblemCode",
    "Rope",
    "RopeKind",
    "config_from_hf",
    "expected_tensors",
    "inverse_frequencies",
]
