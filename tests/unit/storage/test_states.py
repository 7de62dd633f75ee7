"""The state machines: which arrows there are, and that ends are ends."""

from __future__ import annotations

import pytest

from common.wire import ReplicaState
from storage import states
from storage.records import DeploymentState, JobState, RevisionState, UploadState

U, R, J, D, P = UploadState, RevisionState, JobState, DeploymentState, ReplicaState

ARROWS = {
    states.upload_may_become: {
        (U.CREATED, U.UPLOADING),
        (U.CREATED, U.VERIFYING),
        (U.CREATED, U.FAILED),
        (U.CREATED, U.ABORTED),
        (U.UPLOADING, U.VERIFYING),
        (U.UPLOADING, U.FAILED),
        (U.UPLOADING, U.ABORTED),
        (U.VERIFYING, U.READY),
        (U.VERIFYING, U.FAILED),
    },
    states.revision_may_become: {
        (R.UPLOADED, R.COMPILING),
        (R.UPLOADED, R.FAILED),
        (R.COMPILING, R.READY),
        (R.COMPILING, R.FAILED),
    },
    states.job_may_become: {
        (J.QUEUED, J.RUNNING),
        (J.QUEUED, J.CANCELLED),
        (J.RUNNING, J.QUEUED),
        (J.RUNNING, J.SUCCEEDED),
        (J.RUNNING, J.FAILED),
        (J.RUNNING, J.CANCELLED),
    },
    states.deployment_may_become: {(D.ACTIVE, D.DELETING), (D.DELETING, D.DELETED)},
    states.replica_may_become: {
        (P.STARTING, P.READY),
        (P.STARTING, P.DRAINING),
        (P.STARTING, P.GONE),
        (P.READY, P.DRAINING),
        (P.READY, P.GONE),
        (P.DRAINING, P.GONE),
    },
}
KINDS = {
    states.upload_may_become: U,
    states.revision_may_become: R,
    states.job_may_become: J,
    states.deployment_may_become: D,
    states.replica_may_become: P,
}


@pytest.mark.parametrize("machine", ARROWS, ids=lambda machine: machine.__name__)
def test_a_machine_has_exactly_its_arrows(machine):
    kind = KINDS[machine]
    assert {(old, new) for old in kind for new in kind if machine(old, new)} == ARROWS[machine]


def test_the_states_before_are_those_with_an_arrow():
    assert set(states.jobs_before(J.CANCELLED)) == {J.QUEUED, J.RUNNING}
    assert set(states.uploads_before(U.VERIFYING)) == {U.CREATED, U.UPLOADING}
    assert set(states.revisions_before(R.FAILED)) == {R.UPLOADED, R.COMPILING}
    assert set(states.replicas_before(P.GONE)) == {P.STARTING, P.READY, P.DRAINING}
    assert states.deployments_before(D.ACTIVE) == ()
