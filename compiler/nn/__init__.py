"""Layers over the Tensor API: linear, norm, embedding, gated MLP, rotary embedding, paged attention."""

from compiler.nn.attention import KeyValueCache, PagedAttention, PagedStep, Scores, attend
from compiler.nn.layers import Embedding, GatedMLP, LayerNorm, Linear, RMSNorm
from compiler.nn.parameters import Parameters
from compiler.nn.rotary import Rotary

__all__ = [
    "Embedding",
    "GatedMLP",
    "KeyValueCache",
    "LayerNorm",
    "Linear",
    "PagedAttention",
    "PagedStep",
    "Parameters",
    "RMSNorm",
    "Rotary",
    "Scores",
    "attend",
]
