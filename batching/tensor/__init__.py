"""batching.tensor."""
