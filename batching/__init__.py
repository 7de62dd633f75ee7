"""Serving: the engine (pure), prompts, dynamic batching of plain models, and the replica process."""
