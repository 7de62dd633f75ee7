"""`candela compile`: a checkpoint to an artifact on this machine, without the platform."""

from __future__ import annotations

import typer

app = typer.Typer(add_completion=False)
