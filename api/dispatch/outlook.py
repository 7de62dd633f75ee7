"""Whether it makes sense to go on waiting for a replica: the control plane notes why none starts."""

from __future__ import annotations

from api.errors import DeploymentFailed, ModelNotFound
from common.errors import PlatformError
from common.wire import ReplicaState
from storage.db import Connection
from storage.deployments import load_deployment
from storage.records import SERVED_BEFORE, DeploymentState
from storage.replicas import list_replicas

_HOPEFUL = (ReplicaState.STARTING, ReplicaState.READY)


def outlook(conn: Connection, deployment_id: str) -> PlatformError | None:
    """Why a request that is held for a deployment waits in vain; None while a replica may yet come.

    The failure of a start counts, while no other is under way: the control plane tries again at its own pace.
    A replica that failed after it had been ready is merely to be replaced.
    """
    deployment = load_deployment(conn, deployment_id)
    if deployment.state is not DeploymentState.ACTIVE:
        return ModelNotFound(deployment.name)
    failure = deployment.failure
    if failure is None or failure.code == SERVED_BEFORE or list_replicas(conn, deployment_id, _HOPEFUL):
        return None
    return DeploymentFailed(deployment.name, failure.message)
