"""Writes docs/configuration.md from the settings classes: `python -m docs.generate.configuration`."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from api.settings import GatewaySettings
from candela.up.settings import UpSettings
from scheduler.settings import SchedulerSettings
from worker.settings import WorkerSettings

PAGE = Path(__file__).parents[1] / "configuration.md"
CLASSES: Mapping[str, type[BaseSettings]] = {
    "gateway": GatewaySettings,
    "scheduler": SchedulerSettings,
    "worker": WorkerSettings,
    "up": UpSettings,
}
_KIB = 1024
_HEAD = """\
# Configuration

Made from the settings classes by `python -m docs.generate.configuration`; a test fails when this page is old.

Every process reads its settings once, from the environment, when it starts. All names begin with `CANDELA_`.
Every default but one runs on a laptop: the gateway needs `CANDELA_SECRET_KEY`, which `candela up` makes by
itself and keeps in `secrets.json`. Units are in the names: `_s` seconds, `_bytes` bytes, `_tokens` tokens.

`candela up` starts the processes and tells each what it needs; what is set when it starts reaches them, too.
In the column "read by", `up` is the supervisor itself: its options on the command line win over the
environment, and unless `CANDELA_REDIS_URL` is set it runs a Valkey server of its own.

| variable | default | read by | what it is |
| --- | --- | --- | --- |
"""
_TAIL = """
## Clients

`candela` commands and `candela.Client()` find the platform by these; without them they read `client.json` in
the data directory, which `candela up` writes, mode 0600.

| variable | what it is |
| --- | --- |
| `CANDELA_URL` | the gateway's address, such as `http://127.0.0.1:8080` |
| `CANDELA_API_KEY` | the key, as `candela key create` printed it |
| `CANDELA_DATA_DIR` | where `client.json` lies, when not in `~/.candela` |

## Replicas

A replica takes its limits from its command line (`python -m batching.replica.main --help`) and one thing from
the environment: `CANDELA_REPLICA_SECRET`, which its launcher makes for it alone and callers must show. It
inherits no credentials.

## Compilers

The worker and `candela compile` use the C++ compiler that `CXX` names, or else the first that works of `g++`,
`clang++` and the `ziglang` package.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable; several processes may read it, by one meaning."""

    variable: str
    default: str
    readers: tuple[str, ...]
    about: str


def settings() -> tuple[Setting, ...]:
    """Every variable, in the order in which the classes name them."""
    names = dict.fromkeys(name for cls in CLASSES.values() for name in cls.model_fields)
    return tuple(_setting(name) for name in names)


def page() -> str:
    rows = [f"| `{s.variable}` | {s.default} | {', '.join(s.readers)} | {s.about} |\n" for s in settings()]
    return _HEAD + "".join(rows) + _TAIL


def _setting(name: str) -> Setting:
    readers = {reader: cls for reader, cls in CLASSES.items() if name in cls.model_fields}
    docs = [text for cls in readers.values() if (text := field_docs(cls).get(name))]
    default = _default(next(iter(readers.values())).model_fields[name])
    return Setting(f"CANDELA_{name.upper()}", default, tuple(readers), docs[0] if docs else "")


def field_docs(cls: type[BaseSettings]) -> Mapping[str, str]:
    """The string that stands below each field."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef), "a settings class is a class"
    return {
        field.target.id: " ".join(below.value.value.split())
        for field, below in zip(body.body, body.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is None:
        return ""
    assert not isinstance(value, SecretStr), "a secret has no default"
    if isinstance(value, int) and not isinstance(value, bool) and value >= _KIB**2 and value % _KIB**2 == 0:
        return f"{value // _KIB**2} MiB"
    return f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
