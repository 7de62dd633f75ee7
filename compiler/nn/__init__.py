"""Layers over the Tensor API: linear, norm, embedding, gated MLP, rotary embedding, paged attention."""

from compiler.nn.attention import KeyValueCache, PagedAttention, PagedStep, attend
from compiler.nn.layers import Embedding, GatedMLP, Linear, RMSNorm
from compiler.nn.parameters import Parameters
from compiler.nn.rotary import Rotary

__all__ = [
    "Embedding",
    "GatedMLP",
    "KeyValueCache",
    "Linear",
    "PagedAttention",
    "PagedStep",
    "Parameters",
    "RMSNorm",
    "Rotary",
    "attend",
]
