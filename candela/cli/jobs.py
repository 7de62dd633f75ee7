"""`candela job`: list, watch, cancel."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from candela.client import Client, Job, JobEvent, require_success

from .output import AsJson, DataDirOption, print_json, print_table, show_time, talk

app = typer.Typer(help="List, watch and cancel compile jobs.", no_args_is_help=True, add_completion=False)

JobArgument = Annotated[str, typer.Argument(metavar="ID", help="The job's id.")]


@app.command("list")
def list_jobs(
    model: Annotated[str | None, typer.Option(help="Only this model's jobs.")] = None,
    state: Annotated[str | None, typer.Option(help="Only jobs in this state.")] = None,
    data_dir: DataDirOption = None,
    as_json: AsJson = False,
) -> None:
    """List compile jobs, newest first."""
    with Client(data_dir=data_dir) as client:
        jobs = client.jobs.list(model=model, state=state)
    if as_json:
        return print_json(jobs)
    headings = ("ID", "MODEL", "STATE", "STAGE", "DONE", "ATTEMPTS", "CREATED", "FAILURE")
    return print_table(headings, (_row(job) for job in jobs))


@app.command()
def watch(job_id: JobArgument, data_dir: DataDirOption = None, as_json: AsJson = False) -> None:
    """Follow a job to its end; exit 1 if it fails. With --json, one event a line, then the job."""
    with Client(data_dir=data_dir) as client:
        job = follow(client, job_id, as_json)
    if as_json:
        return print_json(job)
    return print(job.state)


@app.command()
def cancel(job_id: JobArgument, data_dir: DataDirOption = None, as_json: AsJson = False) -> None:
    """Stop a job that is queued or running."""
    with Client(data_dir=data_dir) as client:
        job = client.jobs.cancel(job_id)
    if as_json:
        return print_json(job)
    return talk.print(f"job {job.id} is {job.state}")


def follow(client: Client, job_id: str, as_json: bool) -> Job:
    """Show a job's progress until it is over.

    Raises:
        JobFailed: it ended in any other way than well.
    """
    if as_json:
        for event in client.jobs.watch(job_id):
            print_json(event)
    else:
        _draw(client, job_id)
    return require_success(client.jobs.get(job_id))


def _draw(client: Client, job_id: str) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    with Progress(*columns, TimeElapsedColumn(), console=talk) as progress:
        bar = progress.add_task("queued", total=1.0)
        for event in client.jobs.watch(job_id):
            if event.kind == "progress":
                progress.update(bar, description=_caption(event), completed=float(event.body["fraction"]))
            elif event.kind == "state":
                done = 1.0 if event.body["state"] == "succeeded" else None
                progress.update(bar, description=str(event.body["state"]), completed=done)
            else:
                progress.console.print(str(event.body.get("message", "")), markup=False)


def _caption(event: JobEvent) -> str:
    stage, message = str(event.body["stage"]), str(event.body.get("message") or "")
    return f"{stage}: {message}"[:60] if message else stage


def _row(job: Job) -> tuple[str, ...]:
    done, created = f"{job.fraction:.0%}", show_time(job.created_at)
    why = "-" if job.failure is None else " ".join(f"{job.failure.code}: {job.failure.message}".split())
    return (job.id, job.model, job.state, job.stage or "-", done, str(job.attempts), created, why)
