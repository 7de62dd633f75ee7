"""The list of commands, and a group that imports a command's module only when it is called.

`candela --help` and a typing error import none of them; a command pays for itself only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from typer._click import Context
    from typer._click.core import Command


@dataclass(frozen=True, slots=True)
class Entry:
    """`attribute` of `module` is a Typer app; `help` stands here so that listing imports nothing."""

    module: str
    attribute: str
    help: str


COMMANDS: Mapping[str, Entry] = {
    "up": Entry("platform", "up_app", "Start the whole platform on this machine."),
    "down": Entry("platform", "down_app", "Stop the platform that runs on a data directory."),
    "status": Entry("platform", "status_app", "Show the platform's processes and address."),
    "doctor": Entry("doctor", "app", "Check this machine and name the fix for what is missing."),
    "model": Entry("models", "app", "Upload, list, show and delete models."),
    "job": Entry("jobs", "app", "List, watch and cancel compile jobs."),
    "deploy": Entry("deployments", "deploy_app", "Make a model reachable, with a scaling policy."),
    "deployment": Entry("deployments", "app", "List and delete deployments."),
    "chat": Entry("chat", "app", "Talk to a deployment."),
    "usage": Entry("usage", "app", "Show what was used, and what it costs."),
    "key": Entry("keys", "app", "Create, list and revoke API keys."),
    "compile": Entry("compiling", "app", "Compile a checkpoint into an artifact, without the platform."),
    "run": Entry("running", "run_app", "Generate text with a compiled artifact, without the platform."),
    "bench": Entry("running", "bench_app", "Measure a compiled artifact on the standard workloads."),
    "verify": Entry("attesting", "verify_app", "Check again what a compiled artifact attests about itself."),
    "sign": Entry("attesting", "sign_app", "Sign a compiled artifact with an ed25519 key."),
}


class LazyGroup(TyperGroup):
    """Shows stubs, and puts the real command in a stub's place when it is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {name: TyperCommand(name, help=entry.help) for name, entry in COMMANDS.items()}

    def list_commands(self, ctx: Context) -> list[str]:
        return list(COMMANDS)

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        if args and args[0] in COMMANDS:
            self.add_command(load_command(args[0]), args[0])
        return super().resolve_command(ctx, args)


def load_command(name: str) -> Command:
    entry = COMMANDS[name]
    module = import_module(f"candela.cli.{entry.module}")
    command = typer.main.get_command(getattr(module, entry.attribute))
    command.name = name
    return command
