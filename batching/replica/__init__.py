"""batching.replica."""
