"""Continuous batching over a paged KV pool: pure, deterministic, driven by whoever owns the thread."""

from batching.engine.absorb import Event
from batching.engine.config import EngineConfig
from batching.engine.engine import Engine, EngineStats
from batching.engine.errors import INVALID_LOGITS, DuplicateRequest, InvalidRequest, PoolExceeded, QueueFull
from batching.engine.ports import (
    Broken,
    Constraint,
    Detokenizer,
    Draw,
    History,
    Outcome,
    Picked,
    Program,
    Score,
    StepInput,
    TextStream,
)

__all__ = [
    "INVALID_LOGITS",
    "Broken",
    "Constraint",
    "Detokenizer",
    "Draw",
    "DuplicateRequest",
    "Engine",
    "EngineConfig",
    "EngineStats",
    "Event",
    "History",
    "InvalidRequest",
    "Outcome",
    "Picked",
    "PoolExceeded",
    "Program",
    "QueueFull",
    "Score",
    "StepInput",
    "TextStream",
]
