"""batching.engine."""
