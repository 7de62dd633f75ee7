"""Every router of the management API."""

from __future__ import annotations

from fastapi import APIRouter

from api.manage import deployments, health, jobs, keys, models, requests, uploads, usage


def routers() -> tuple[APIRouter, ...]:
    modules = (health, uploads, models, jobs, deployments, keys, usage, requests)
    return tuple(module.router for module in modules)
