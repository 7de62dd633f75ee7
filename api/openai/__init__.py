"""OpenAI's dialect, and the only place that knows it: request rules, answers, chunks, server-sent events."""

from api.openai.routes import routers

__all__ = ["routers"]
