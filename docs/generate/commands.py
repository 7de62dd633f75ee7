"""Writes docs/commands.md from the command line itself: `python -m docs.generate.commands`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from candela.cli.lazy import COMMANDS, load_command

PAGE = Path(__file__).parents[1] / "commands.md"
_HEAD = """\
# Commands

Made from the command line by `python -m docs.generate.commands`; a test fails when this page is old.

Results go to stdout, everything else to stderr. `--json` prints the result for a program. Exit codes: 0 done,
1 failed (one line says why), 2 misused. Platform commands need an address and a key: see
[configuration](configuration.md#clients).
"""
_ANYWHERE = {"help", "install_completion", "show_completion"}


def page() -> str:
    return _HEAD + "".join(_section(name, load_command(name)) for name in COMMANDS)


def _section(name: str, command: Any) -> str:
    children: dict[str, Any] = getattr(command, "commands", {})
    if children:
        intro = f"\n## candela {name}\n\n{COMMANDS[name].help}\n"
        return intro + "".join(_command(f"{name} {child}", children[child], "###") for child in children)
    return _command(name, command, "##")


def _command(path: str, command: Any, level: str) -> str:
    said = " ".join((command.help or "").split())
    rows = list(_options(command))
    table = "\n| option | what it does |\n| --- | --- |\n" + "".join(rows) if rows else ""
    return f"\n{level} candela {path}\n\n    candela {path}{_arguments(command)}\n\n{said}\n{table}"


def _arguments(command: Any) -> str:
    found = (p for p in command.params if p.param_type_name == "argument")
    return "".join(f" {p.name.upper()}" if p.required else f" [{p.name.upper()}]" for p in found)


def _options(command: Any) -> Iterator[str]:
    for option in command.params:
        if option.param_type_name == "option" and option.name not in _ANYWHERE:
            names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
            said = " ".join((option.help or "").split())
            yield f"| {names} | {said}{' Required.' if option.required else ''} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
