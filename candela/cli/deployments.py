"""`candela deploy` and `candela deployment`: make a model reachable, list and delete deployments."""

from __future__ import annotations

from typing import Annotated

import typer

from candela.client import Client, Conflict, Deployment, ScalingPolicy

from .durations import parse_duration, show_duration
from .output import AsJson, DataDirOption, print_json, print_table, show_time, talk

deploy_app = typer.Typer(add_completion=False)
app = typer.Typer(help="List and delete deployments.", no_args_is_help=True, add_completion=False)


@deploy_app.command()
def deploy(
    name: Annotated[str, typer.Argument(help="The deployment's name: what requests call `model`.")],
    model: Annotated[str | None, typer.Option(help="The model behind it. Default: the same name.")] = None,
    min_replicas: Annotated[int, typer.Option("--min", min=0, help="Replicas kept when idle.")] = 0,
    max_replicas: Annotated[int, typer.Option("--max", min=1, help="Replicas at most.")] = 1,
    idle: Annotated[str, typer.Option(metavar="TIME", help="Idle time until zero: 30s, 5m, 1h.")] = "60s",
    target: Annotated[int, typer.Option(min=1, help="Requests in flight a replica is meant to hold.")] = 16,
    data_dir: DataDirOption = None,
    as_json: AsJson = False,
) -> None:
    """Make a model reachable, or change the policy of a deployment that exists."""
    if min_replicas > max_replicas:
        raise typer.BadParameter(f"--min {min_replicas} is more than --max {max_replicas}")
    policy = ScalingPolicy(min_replicas, max_replicas, parse_duration(idle, "--idle"), target)
    with Client(data_dir=data_dir) as client:
        deployment = create_or_update(client, name, model, policy)
    if as_json:
        return print_json(deployment)
    print(deployment.name)
    return talk.print(f"{client.config.url}/v1 now answers for model {deployment.name!r}")


@app.command("list")
def list_deployments(data_dir: DataDirOption = None, as_json: AsJson = False) -> None:
    """List deployments with their policies and replicas."""
    with Client(data_dir=data_dir) as client:
        deployments = client.deployments.list()
    if as_json:
        return print_json(deployments)
    headings = ("NAME", "MODEL", "STATUS", "MIN", "MAX", "IDLE", "READY", "CREATED")
    return print_table(headings, (_row(deployment) for deployment in deployments))


@app.command()
def delete(
    name: Annotated[str, typer.Argument(help="The deployment's name.")],
    data_dir: DataDirOption = None,
    as_json: AsJson = False,
) -> None:
    """Take a deployment off; its replicas finish what they are answering."""
    with Client(data_dir=data_dir) as client:
        client.deployments.delete(name)
    if as_json:
        return print_json({"deleted": name})
    return talk.print(f"deleted deployment {name}")


def create_or_update(client: Client, name: str, model: str | None, policy: ScalingPolicy) -> Deployment:
    """Create the deployment, or change the policy of the one of that name and model.

    Raises: ApiError: also when the name is free and the model is not ready.
    """
    try:
        return client.deployments.create(name, model or name, policy)
    except Conflict as error:
        if error.code != "name_taken":
            raise
        existing = client.deployments.get(name)
        if existing.model != (model or name):
            raise
        return client.deployments.update(name, policy)


def _row(deployment: Deployment) -> tuple[str, ...]:
    policy = deployment.policy
    ready = sum(replica.state == "ready" for replica in deployment.replicas)
    idle, created = show_duration(policy.idle_timeout_s), show_time(deployment.created_at)
    counts = (str(policy.min_replicas), str(policy.max_replicas))
    return (deployment.name, deployment.model, deployment.status, *counts, idle, str(ready), created)
