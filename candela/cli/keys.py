"""`candela key`: create, list, revoke."""

from __future__ import annotations

from typing import Annotated

import typer

from candela.client import ApiKey, Client

from .output import AsJson, DataDirOption, print_json, print_table, show_time, talk

app = typer.Typer(help="Create, list and revoke API keys.", no_args_is_help=True, add_completion=False)


@app.command()
def create(
    name: Annotated[str, typer.Option("--name", "-n", help="What the key is for.")] = "cli",
    scope: Annotated[
        list[str] | None, typer.Option(help="admin, inference or read; may be given several times.")
    ] = None,
    data_dir: DataDirOption = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it, this once. Without --scope it may only call models."""
    with Client(data_dir=data_dir) as client:
        made = client.keys.create(name, scope or ["inference"])
    if as_json:
        return print_json(made)
    print(made.secret)
    return talk.print(f"key {made.key.id} ({', '.join(made.key.scopes)}); it can't be shown again")


@app.command("list")
def list_keys(data_dir: DataDirOption = None, as_json: AsJson = False) -> None:
    """List keys, revoked ones included."""
    with Client(data_dir=data_dir) as client:
        keys = client.keys.list()
    if as_json:
        return print_json(keys)
    headings = ("ID", "NAME", "PREFIX", "SCOPES", "CREATED", "REVOKED")
    return print_table(headings, (_row(key) for key in keys))


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id.")],
    data_dir: DataDirOption = None,
    as_json: AsJson = False,
) -> None:
    """Close a key for good."""
    with Client(data_dir=data_dir) as client:
        client.keys.revoke(key_id)
    if as_json:
        return print_json({"revoked": key_id})
    return talk.print(f"revoked key {key_id}")


def _row(key: ApiKey) -> tuple[str, ...]:
    created, revoked = show_time(key.created_at), show_time(key.revoked_at)
    return (key.id, key.name, f"{key.prefix}…", " ".join(key.scopes), created, revoked)
