"""The images as their Dockerfiles say they are: environment, start command, health check."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support.repository import ROOT

NAMES = ("gateway", "replica", "scheduler", "worker")


@dataclass(frozen=True, slots=True)
class Image:
    """The last stage of a Dockerfile. `command` is entry point and default arguments together."""

    bases: tuple[str, ...]
    user: str
    environment: Mapping[str, str]
    command: tuple[str, ...]
    health_command: tuple[str, ...]
    text: str


def dockerfile(name: str) -> Path:
    return ROOT / "deploy" / f"Dockerfile.{name}"


@cache
def read_image(name: str) -> Image:
    text = dockerfile(name).read_text(encoding="utf-8")
    steps = _instructions(text)
    found = dict(steps[_last_from(steps) :])
    health = found["HEALTHCHECK"]
    return Image(
        bases=tuple(rest.split()[0] for word, rest in steps if word == "FROM"),
        user=found["USER"],
        environment=dict(pair.split("=", 1) for pair in found.get("ENV", "").split()),
        command=(*_array(found.get("ENTRYPOINT", "[]")), *_array(found["CMD"])),
        health_command=_array(health[health.index("CMD") + 3 :]),
        text=text,
    )


@cache
def compose_file() -> dict[str, Any]:
    """docker-compose.yml, parsed, with merge keys resolved and variables as they stand."""
    parsed: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    return parsed


def _instructions(text: str) -> list[tuple[str, str]]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [(word, " ".join(rest)) for word, *rest in (line.split() for line in joined.splitlines())]


def _last_from(steps: list[tuple[str, str]]) -> int:
    return max(number for number, (word, _) in enumerate(steps) if word == "FROM")


def _array(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))
