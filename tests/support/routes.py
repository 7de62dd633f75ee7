"""Every route of an app, flat, whatever the framework keeps them in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI


@dataclass(frozen=True)
class RouteInfo:
    """One method of one path. `scopes` are what its dependencies demand of a key."""

    method: str
    path: str
    scopes: tuple[str, ...]
    endpoint: Any

    def filled(self) -> str:
        """A path with something in every placeholder."""
        return re.sub(r"\{[^}]+\}", "1", self.path)


def routes_of(app: FastAPI) -> tuple[RouteInfo, ...]:
    """HEAD and OPTIONS are left out: the framework adds them."""
    found = {}
    for route in _flat(app.routes):
        for method in sorted(set(getattr(route, "methods", None) or ()) - {"HEAD", "OPTIONS"}):
            info = RouteInfo(method, route.path, tuple(_scopes(route)), getattr(route, "endpoint", None))
            found[method, route.path] = info
    return tuple(found.values())


def _flat(routes: Any) -> Iterator[Any]:
    for route in routes:
        router = getattr(route, "original_router", None) or getattr(route, "router", None)
        inner = getattr(route, "routes", None) or getattr(router, "routes", None)
        if inner:
            yield from _flat(inner)
        elif hasattr(route, "path"):
            yield route


def _scopes(route: Any) -> Iterator[str]:
    dependant = getattr(route, "dependant", None)
    for dependency in dependant.dependencies if dependant else ():
        scope = getattr(dependency.call, "needed_scope", None)
        if scope is not None:
            yield scope.value
