"""Models and their revisions."""

from __future__ import annotations

import pytest

from storage import deployments, jobs, models, uploads
from storage.errors import IllegalTransition, ModelInUse, ModelNotFound, RevisionNotFound, RevisionNotReady
from storage.records import Failure, JobState, RevisionState, UploadState
from tests.support.storage_rows import (
    NOW,
    a_build,
    a_deployment,
    a_file,
    a_job,
    a_ready_revision,
    a_tenant,
    an_upload,
)


def test_models_are_listed_by_name_within_their_tenant(conn, tenant):
    models.ensure_model(conn, a_tenant(conn, "other").id, "theirs", NOW)
    models.ensure_model(conn, tenant.id, "b", NOW)
    models.ensure_model(conn, tenant.id, "a", NOW)
    assert [m.name for m in models.list_models(conn, tenant.id)] == ["a", "b"]


def test_ensuring_a_model_twice_gives_the_same(conn, tenant):
    assert models.ensure_model(conn, tenant.id, "a", NOW) == models.ensure_model(
        conn, tenant.id, "a", NOW + 1
    )


def test_an_unknown_model_is_an_error(conn, tenant):
    with pytest.raises(ModelNotFound):
        models.get_model(conn, tenant.id, "none")


def test_a_ready_revision_has_its_build(conn, tenant):
    revision = a_ready_revision(conn, tenant)
    assert (revision.state, revision.require_build()) == (RevisionState.READY, a_build())
    assert models.get_revision(conn, tenant.id, revision.id) == revision


def test_a_ready_revision_makes_its_upload_ready(conn, tenant):
    a_ready_revision(conn, tenant)
    assert [u.state for u in uploads.list_uploads(conn, tenant.id)] == [UploadState.READY]


def test_an_uncompiled_revision_has_no_build(conn, tenant):
    revision = models.load_revision(conn, a_job(conn, tenant).revision_id)
    with pytest.raises(RevisionNotReady):
        revision.require_build()


def test_publishing_the_same_build_again_is_a_no_op(conn, tenant):
    revision = a_ready_revision(conn, tenant)
    assert models.set_revision_ready(conn, revision.id, a_build(), NOW + 5) == revision


def test_a_revision_does_not_change_its_build(conn, tenant):
    revision = a_ready_revision(conn, tenant)
    with pytest.raises(IllegalTransition):
        models.set_revision_ready(conn, revision.id, a_build("other"), NOW)


def test_a_failed_revision_does_not_become_ready(conn, tenant):
    job = a_job(conn, tenant)
    models.set_revision_failed(conn, job.revision_id, Failure("x", "y"), NOW)
    with pytest.raises(IllegalTransition):
        models.set_revision_ready(conn, job.revision_id, a_build(), NOW)


def test_a_revision_that_was_never_claimed_does_not_become_ready(conn, tenant):
    with pytest.raises(IllegalTransition):
        models.set_revision_ready(conn, a_job(conn, tenant).revision_id, a_build(), NOW)


def test_the_latest_ready_revision_skips_newer_ones_that_are_not_ready(conn, tenant):
    first = a_ready_revision(conn, tenant, "tiny", a_file("a", "1"), build_key="b1")
    second = a_ready_revision(conn, tenant, "tiny", a_file("a", "2"), build_key="b2")
    a_job(conn, tenant, "tiny", a_file("a", "3"))
    assert models.latest_ready_revision(conn, tenant.id, first.model_id) == second
    assert [r.number for r in models.list_revisions(conn, tenant.id, first.model_id)] == [3, 2, 1]


def test_a_model_without_a_ready_revision_has_no_latest(conn, tenant):
    job = a_job(conn, tenant)
    assert models.latest_ready_revision(conn, tenant.id, job.model_id) is None


def test_another_tenants_revision_does_not_exist(conn, tenant):
    revision = a_ready_revision(conn, tenant)
    other = a_tenant(conn, "other")
    with pytest.raises(RevisionNotFound):
        models.get_revision(conn, other.id, revision.id)
    assert models.latest_ready_revision(conn, other.id, revision.model_id) is None


def test_deleting_a_model_frees_its_name_and_its_blobs(conn, tenant):
    revision = a_ready_revision(conn, tenant)
    dropped = models.delete_model(conn, tenant.id, "tiny", NOW)
    assert dropped == (revision.files[0].blob_key, f"artifacts/{tenant.id}/b1/")
    assert models.list_models(conn, tenant.id) == ()
    assert models.ensure_model(conn, tenant.id, "tiny", NOW).id != revision.model_id


def test_deleted_bytes_must_be_sent_again(conn, tenant):
    a_ready_revision(conn, tenant)
    models.delete_model(conn, tenant.id, "tiny", NOW)
    assert [f.needs_bytes for f in an_upload(conn, tenant).files] == [True]


def test_blobs_and_builds_that_another_model_shares_are_kept(conn, tenant):
    a_ready_revision(conn, tenant, "one")
    a_ready_revision(conn, tenant, "two")
    assert models.delete_model(conn, tenant.id, "one", NOW) == ()
    assert len(models.delete_model(conn, tenant.id, "two", NOW)) == 2


def test_blobs_that_an_open_upload_counts_on_are_kept(conn, tenant):
    a_ready_revision(conn, tenant)
    waiting = an_upload(conn, tenant, "next")
    assert models.delete_model(conn, tenant.id, "tiny", NOW) == (f"artifacts/{tenant.id}/b1/",)
    revision, _ = uploads.complete_upload(conn, tenant.id, waiting.id, NOW)
    assert revision.files[0].blob_key == waiting.files[0].reused_key


def test_a_model_that_is_deployed_can_not_be_deleted(conn, tenant):
    deployment = a_deployment(conn, tenant)
    with pytest.raises(ModelInUse) as caught:
        models.delete_model(conn, tenant.id, "tiny", NOW)
    assert caught.value.deployments == (deployment.name,)


def test_a_model_can_be_deleted_once_its_deployment_is_gone(conn, tenant):
    deployment = a_deployment(conn, tenant)
    deployments.delete_deployment(conn, tenant.id, deployment.name, NOW)
    deployments.finish_deletion(conn, deployment.id, NOW)
    assert models.delete_model(conn, tenant.id, "tiny", NOW)


def test_deleting_a_model_cancels_its_open_jobs(conn, tenant):
    job = a_job(conn, tenant)
    models.delete_model(conn, tenant.id, "tiny", NOW)
    assert jobs.load_job(conn, job.id).state is JobState.CANCELLED
