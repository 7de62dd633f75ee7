"""Every router of the OpenAI surface."""

from __future__ import annotations

from fastapi import APIRouter

from api.openai import chat, completions, models


def routers() -> tuple[APIRouter, ...]:
    return (chat.router, completions.router, models.router)
