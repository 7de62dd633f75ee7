"""`candela verify` and `candela sign`: what an artifact attests, checked again; without the platform."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .output import AsJson, print_json, print_table, talk
from .running import ArtifactArgument

verify_app = typer.Typer(add_completion=False)
sign_app = typer.Typer(add_completion=False)


@verify_app.command("verify")
def verify_artifact(
    out: ArtifactArgument,
    checkpoint: Annotated[
        Path | None,
        typer.Option(exists=True, help="What it was compiled from: compare graph, weights and answers too."),
    ] = None,
    public_key: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="PEM file; the artifact must be signed with it."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check an artifact's receipt again. Exit code 1 when something does not hold."""
    from compiler.artifact.signing import TrustedKey
    from compiler.recheck import recheck

    trusted = None if public_key is None else TrustedKey.read(public_key)
    findings = recheck(out / "artifact", checkpoint=checkpoint, trusted=trusted, on_progress=talk.print)
    if as_json:
        print_json(findings)
    else:
        rows = ([f.check, "ok" if f.is_ok else "FAILED", f.detail] for f in findings)
        print_table(["CHECK", "RESULT", "DETAIL"], rows)
    if not all(f.is_ok for f in findings):
        raise typer.Exit(1)


@sign_app.command("sign")
def sign_artifact(
    out: ArtifactArgument,
    key: Annotated[
        Path,
        typer.Option(exists=True, dir_okay=False, help="An ed25519 private key: PEM, no password."),
    ],
) -> None:
    """Sign a compiled artifact; `candela verify --public-key` checks it."""
    from compiler.artifact import open_artifact
    from compiler.artifact.signing import SIGNATURE_FILE, sign

    root = open_artifact(out / "artifact").root
    sign(root, key)
    print(root / SIGNATURE_FILE)
