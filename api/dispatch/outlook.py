"""Whether it makes sense to go on waiting for a replica: the control plane notes why none starts."""

from __future__ import annotations

from api.errors import DeploymentFailed, ModelNotFound
from common.errors import PlatformError
from common.wire import ReplicaState
from storage.db import Connection
from storage.deployments import load_deployment
from storage.records import DeploymentState
from storage.replicas import list_replicas

_HOPEFUL = (ReplicaState.STARTING, ReplicaState.READY)


def outlook(conn: Connection, deployment_id: str) -> PlatformError | None:
    """Why a request that is held for a deployment waits in vain; None while a replica may yet come.

    A failure counts only while no replica is starting: the control plane tries again at its own pace.
    """
    deployment = load_deployment(conn, deployment_id)
    if deployment.state is not DeploymentState.ACTIVE:
        return ModelNotFound(deployment.name)
    if deployment.failure is None or list_replicas(conn, deployment_id, _HOPEFUL):
        return None
    return DeploymentFailed(deployment.name, deployment.failure.message)
