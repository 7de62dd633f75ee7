"""batching.prompt."""
