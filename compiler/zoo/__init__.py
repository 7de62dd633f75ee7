"""Models written over the Tensor API: graphs with Hugging Face's weight names, and the tables they need."""

from compiler.zoo.llama import StepLimits, build_llama, key_cache_name, value_cache_name
from compiler.zoo.rope import rope_tables

__all__ = ["StepLimits", "build_llama", "key_cache_name", "rope_tables", "value_cache_name"]
