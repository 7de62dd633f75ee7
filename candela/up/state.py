"""`run/up.json`: who runs a data directory, written by the supervisor, read by all others."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from .data_dir import write_private
from .identity import ProcessIdentity


@dataclass(frozen=True, slots=True)
class ChildState:
    name: str
    identity: ProcessIdentity
    restarts: int


@dataclass(frozen=True, slots=True)
class UpState:
    """`is_ready` is true once the gateway has answered; `made_admin_key` when this start made one."""

    supervisor: ProcessIdentity
    url: str
    is_ready: bool
    made_admin_key: bool
    children: tuple[ChildState, ...]


def write_state(path: Path, state: UpState) -> None:
    write_private(path, json.dumps(asdict(state)))


def read_state(path: Path) -> UpState | None:
    """What the file says; None when there is none or it is not ours to understand."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return UpState(
            supervisor=ProcessIdentity(**raw["supervisor"]),
            url=raw["url"],
            is_ready=raw["is_ready"],
            made_admin_key=raw["made_admin_key"],
            children=tuple(
                ChildState(c["name"], ProcessIdentity(**c["identity"]), c["restarts"])
                for c in raw["children"]
            ),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
