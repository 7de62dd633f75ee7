"""Serving: the engine (pure), prompts, and the replica process."""
