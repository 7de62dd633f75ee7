"""Every router of the dashboard."""

from __future__ import annotations

from fastapi import APIRouter

from api.dashboard import actions, pages, session


def routers() -> tuple[APIRouter, ...]:
    return (session.router, pages.router, actions.router)
