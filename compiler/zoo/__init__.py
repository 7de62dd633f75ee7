"""Models written over the Tensor API: graphs with Hugging Face's weight names, and the tables they need."""

from compiler.zoo.served import build_step, step_tables
from compiler.zoo.step import StepLimits, key_cache_name, value_cache_name

__all__ = ["StepLimits", "build_step", "key_cache_name", "step_tables", "value_cache_name"]
