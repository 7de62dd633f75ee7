"""The state machines of Upload, Revision, Job, Deployment and Replica. Pure: one function a machine.

Each function answers "may `old` become `new`?"; the query modules turn that into conditional UPDATEs, so
that of two racing writers one wins and the other learns it.
"""

from __future__ import annotations

from collections.abc import Mapping

from common.wire import ReplicaState
from storage.records import DeploymentState, JobState, RevisionState, UploadState

_UPLOAD: Mapping[UploadState, frozenset[UploadState]] = {
    UploadState.CREATED: frozenset(
        {UploadState.UPLOADING, UploadState.VERIFYING, UploadState.FAILED, UploadState.ABORTED}
    ),
    UploadState.UPLOADING: frozenset({UploadState.VERIFYING, UploadState.FAILED, UploadState.ABORTED}),
    UploadState.VERIFYING: frozenset({UploadState.READY, UploadState.FAILED}),
    UploadState.READY: frozenset(),
    UploadState.FAILED: frozenset(),
    UploadState.ABORTED: frozenset(),
}

_REVISION: Mapping[RevisionState, frozenset[RevisionState]] = {
    RevisionState.UPLOADED: frozenset({RevisionState.COMPILING, RevisionState.FAILED}),
    RevisionState.COMPILING: frozenset({RevisionState.READY, RevisionState.FAILED}),
    RevisionState.READY: frozenset(),
    RevisionState.FAILED: frozenset(),
}

_JOB: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.CANCELLED}),
    JobState.RUNNING: frozenset({JobState.QUEUED, JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}

_DEPLOYMENT: Mapping[DeploymentState, frozenset[DeploymentState]] = {
    DeploymentState.ACTIVE: frozenset({DeploymentState.DELETING}),
    DeploymentState.DELETING: frozenset({DeploymentState.DELETED}),
    DeploymentState.DELETED: frozenset(),
}

_REPLICA: Mapping[ReplicaState, frozenset[ReplicaState]] = {
    ReplicaState.STARTING: frozenset({ReplicaState.READY, ReplicaState.DRAINING, ReplicaState.GONE}),
    ReplicaState.READY: frozenset({ReplicaState.DRAINING, ReplicaState.GONE}),
    ReplicaState.DRAINING: frozenset({ReplicaState.GONE}),
    ReplicaState.GONE: frozenset(),
}


def upload_may_become(old: UploadState, new: UploadState) -> bool:
    return new in _UPLOAD[old]


def revision_may_become(old: RevisionState, new: RevisionState) -> bool:
    return new in _REVISION[old]


def job_may_become(old: JobState, new: JobState) -> bool:
    return new in _JOB[old]


def deployment_may_become(old: DeploymentState, new: DeploymentState) -> bool:
    return new in _DEPLOYMENT[old]


def replica_may_become(old: ReplicaState, new: ReplicaState) -> bool:
    return new in _REPLICA[old]


def uploads_before(new: UploadState) -> tuple[UploadState, ...]:
    """States from which an upload may become `new`; the WHERE of the conditional update."""
    return tuple(old for old in UploadState if upload_may_become(old, new))


def revisions_before(new: RevisionState) -> tuple[RevisionState, ...]:
    return tuple(old for old in RevisionState if revision_may_become(old, new))


def jobs_before(new: JobState) -> tuple[JobState, ...]:
    return tuple(old for old in JobState if job_may_become(old, new))


def deployments_before(new: DeploymentState) -> tuple[DeploymentState, ...]:
    return tuple(old for old in DeploymentState if deployment_may_become(old, new))


def replicas_before(new: ReplicaState) -> tuple[ReplicaState, ...]:
    return tuple(old for old in ReplicaState if replica_may_become(old, new))
