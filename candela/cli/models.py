"""`candela model`: upload, list, show, delete."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from candela.client import Client, Model, OnProgress, Phase, Revision, Upload, UploadProgress

from .jobs import follow
from .output import AsJson, DataDirOption, print_json, print_table, show_bytes, show_time, talk

app = typer.Typer(help="Upload, list, show and delete models.", no_args_is_help=True, add_completion=False)

NameArgument = Annotated[str, typer.Argument(help="The model's name.")]


@app.command()
def upload(
    path: Annotated[Path, typer.Argument(exists=True, help="A checkpoint directory, or a GGUF file.")],
    name: Annotated[str, typer.Option("--name", "-n", help="The model's name; a new revision if it exists.")],
    dtype: Annotated[str | None, typer.Option(help="Compute type: bf16 or f32.")] = None,
    budget: Annotated[str | None, typer.Option(help="Search budget: none, quick, full, or seconds.")] = None,
    max_context: Annotated[int | None, typer.Option(help="Longest context to compile for.")] = None,
    resume: Annotated[str | None, typer.Option(help="Go on with this upload id.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Watch the compile job to its end.")] = False,
    data_dir: DataDirOption = None,
    as_json: AsJson = False,
) -> None:
    """Send a checkpoint and queue its compilation."""
    chosen = {"dtype": dtype, "budget": budget, "max_context": max_context}
    options = {key: value for key, value in chosen.items() if value is not None}
    with Client(data_dir=data_dir) as client:
        done = upload_with_bar(client, path, name, options, resume)
        if wait and done.job_id is not None:
            follow(client, done.job_id, as_json=False)
    _show_upload(done, as_json)


@app.command("list")
def list_models(data_dir: DataDirOption = None, as_json: AsJson = False) -> None:
    """List models, with the state of their newest revision."""
    with Client(data_dir=data_dir) as client:
        models = client.models.list()
    if as_json:
        return print_json(models)
    headings = ("NAME", "REVISIONS", "NEWEST", "SIZE", "CREATED")
    return print_table(headings, (_row(model) for model in models))


@app.command()
def show(name: NameArgument, data_dir: DataDirOption = None, as_json: AsJson = False) -> None:
    """Show a model and its revisions."""
    with Client(data_dir=data_dir) as client:
        model = client.models.get(name)
    if as_json:
        return print_json(model)
    headings = ("REVISION", "ID", "STATE", "SIZE", "READY", "FAILURE")
    return print_table(headings, (_revision_row(revision) for revision in model.revisions))


@app.command()
def delete(name: NameArgument, data_dir: DataDirOption = None, as_json: AsJson = False) -> None:
    """Delete a model that no deployment uses."""
    with Client(data_dir=data_dir) as client:
        client.models.delete(name)
    if as_json:
        return print_json({"deleted": name})
    return talk.print(f"deleted model {name}")


def upload_with_bar(
    client: Client,
    path: Path,
    name: str,
    options: Mapping[str, Any] | None = None,
    resume: str | None = None,
) -> Upload:
    """Upload, or go on with upload `resume`, showing a progress bar on stderr."""
    with _bar() as progress:
        if resume is not None:
            return client.uploads.resume(path, resume, on_progress=_listener(progress))
        return client.uploads.create(path, name, options=options, on_progress=_listener(progress))


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, console=talk)


def _listener(progress: Progress) -> OnProgress:
    bars: dict[Phase, TaskID] = {}

    def listen(step: UploadProgress) -> None:
        if step.phase not in bars:
            bars[step.phase] = progress.add_task(f"{step.phase:8}", total=step.total_bytes)
        progress.update(bars[step.phase], completed=step.done_bytes)

    return listen


def _show_upload(done: Upload, as_json: bool) -> None:
    if as_json:
        return print_json({"upload_id": done.id, "revision_id": done.revision_id, "job_id": done.job_id})
    print(done.job_id)
    return talk.print(f"uploaded {done.model}; its compile job: candela job watch {done.job_id}")


def _row(model: Model) -> tuple[str, ...]:
    newest = max(model.revisions, key=lambda revision: revision.number, default=None)
    state = newest.state if newest else "-"
    size = show_bytes(newest.size_bytes if newest else None)
    return (model.name, str(len(model.revisions)), state, size, show_time(model.created_at))


def _revision_row(revision: Revision) -> tuple[str, ...]:
    failure = revision.failure.message if revision.failure else ""
    size, ready = show_bytes(revision.size_bytes), show_time(revision.ready_at)
    return (str(revision.number), revision.id, revision.state, size, ready, failure)
