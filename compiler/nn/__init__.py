"""Layers over the Tensor API: linear, norms, embedding, gated MLP, rotary, paged attention, convolution."""

from compiler.nn.attention import KeyValueCache, PagedAttention, PagedStep, Scores, attend
from compiler.nn.conv import BatchNorm2d, Conv2d, max_pool
from compiler.nn.layers import Embedding, GatedMLP, LayerNorm, Linear, RMSNorm
from compiler.nn.parameters import Parameters
from compiler.nn.rotary import Rotary

__all__ = [
    "BatchNorm2d",
    "Conv2d",
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
    "max_pool",
]
