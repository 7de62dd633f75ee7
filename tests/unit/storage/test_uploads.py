"""Uploads: manifest, parts, complete."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from common.errors import ChecksumMismatch, InvalidInput, UploadRefused
from storage import jobs, models, uploads
from storage.blobs.names import file_key, part_key
from storage.errors import IllegalTransition, PartConflict, UploadIncomplete, UploadNotFound
from storage.parts import MIB
from storage.records import Failure, FileSpec, JobState, RevisionState, UploadState
from storage.uploads import PartOutcome
from tests.support.storage_rows import NOW, a_file, a_job, a_tenant, an_upload, digest, send_parts

TWO_PARTS = FileSpec("big.safetensors", 10 * MIB, digest("big"))


def send(conn, upload, number=1, sha="one", size=None, file=0):
    """Record part `number` of the upload's file."""
    spec = upload.files[file]
    length = spec.size_bytes if size is None else size
    return uploads.record_part(
        conn, upload.tenant_id, upload.id, spec.id, number, length, digest(sha), NOW + 1
    )


def test_an_upload_keeps_its_manifest_in_order(conn, tenant):
    upload = an_upload(conn, tenant, "tiny", a_file("b"), TWO_PARTS, a_file("a", "other"))
    assert [f.name for f in upload.files] == ["b", "big.safetensors", "a"]
    assert [f.part_count for f in upload.files] == [1, 2, 1]
    assert uploads.get_upload(conn, tenant.id, upload.id) == upload
    assert upload.state is UploadState.CREATED


def test_a_refused_manifest_leaves_no_upload(conn, tenant):
    with pytest.raises(UploadRefused):
        an_upload(conn, tenant, "tiny", FileSpec("../x", 1, digest("x")))
    assert uploads.list_uploads(conn, tenant.id) == ()


def test_another_tenants_upload_does_not_exist(conn, tenant):
    upload = an_upload(conn, tenant)
    other = a_tenant(conn, "other")
    with pytest.raises(UploadNotFound):
        uploads.get_upload(conn, other.id, upload.id)
    with pytest.raises(UploadNotFound):
        uploads.complete_upload(conn, other.id, upload.id, NOW)
    assert uploads.list_uploads(conn, other.id) == ()


def test_the_first_part_begins_the_upload(conn, tenant):
    upload = an_upload(conn, tenant)
    assert send(conn, upload) is PartOutcome.STORED
    assert uploads.get_upload(conn, tenant.id, upload.id).state is UploadState.UPLOADING


def test_received_parts_are_listed_for_a_resume(conn, tenant):
    upload = an_upload(conn, tenant, "tiny", TWO_PARTS)
    send(conn, upload, 2, "two", 2 * MIB)
    (part,) = uploads.parts_of(conn, tenant.id, upload.id)
    assert (part.number, part.size_bytes, part.sha256) == (2, 2 * MIB, digest("two"))
    assert [number for _, number in uploads.missing_parts(conn, tenant.id, upload.id)] == [1]


def test_the_same_part_again_changes_nothing(conn, tenant):
    upload = an_upload(conn, tenant)
    send(conn, upload)
    before = uploads.parts_of(conn, tenant.id, upload.id)
    assert send(conn, upload) is PartOutcome.UNCHANGED
    assert uploads.parts_of(conn, tenant.id, upload.id) == before


def test_other_bytes_replace_a_part_before_complete(conn, tenant):
    upload = an_upload(conn, tenant)
    send(conn, upload, sha="one")
    assert send(conn, upload, sha="two") is PartOutcome.REPLACED
    assert [p.sha256 for p in uploads.parts_of(conn, tenant.id, upload.id)] == [digest("two")]


def test_other_bytes_conflict_after_complete(conn, tenant):
    upload = an_upload(conn, tenant)
    send(conn, upload, sha="one")
    uploads.complete_upload(conn, tenant.id, upload.id, NOW)
    with pytest.raises(PartConflict):
        send(conn, upload, sha="two")


def test_the_same_part_after_complete_is_still_fine(conn, tenant):
    upload = an_upload(conn, tenant)
    send(conn, upload, sha="one")
    uploads.complete_upload(conn, tenant.id, upload.id, NOW)
    assert send(conn, upload, sha="one") is PartOutcome.UNCHANGED


@pytest.mark.parametrize("number", [0, 3])
def test_a_part_outside_the_plan_is_refused(conn, tenant, number):
    upload = an_upload(conn, tenant, "tiny", TWO_PARTS)
    with pytest.raises(InvalidInput) as caught:
        send(conn, upload, number, size=MIB)
    assert caught.value.code == "part_not_found"


def test_a_part_of_another_length_is_refused(conn, tenant):
    upload = an_upload(conn, tenant, "tiny", TWO_PARTS)
    with pytest.raises(ChecksumMismatch) as caught:
        send(conn, upload, 1, size=MIB)
    assert caught.value.code == "part_size_mismatch"


def test_a_part_of_an_unknown_file_is_refused(conn, tenant):
    upload = an_upload(conn, tenant)
    with pytest.raises(InvalidInput) as caught:
        uploads.record_part(conn, tenant.id, upload.id, "none", 1, 1, digest("x"), NOW)
    assert caught.value.code == "file_not_found"


def test_complete_makes_revision_and_job(conn, tenant):
    upload = an_upload(conn, tenant)
    send_parts(conn, upload)
    revision, job = uploads.complete_upload(conn, tenant.id, upload.id, NOW)
    completed = uploads.get_upload(conn, tenant.id, upload.id)
    assert (completed.state, completed.revision_id, completed.job_id) == (U.VERIFYING, revision.id, job.id)
    assert (revision.state, revision.number) == (RevisionState.UPLOADED, 1)
    assert (job.state, job.revision_id, job.upload_id) == (JobState.QUEUED, revision.id, upload.id)
    assert job.options == upload.options == revision.options
    assert models.get_model(conn, tenant.id, "tiny").id == revision.model_id
    assert revision.files[0].blob_key == file_key(upload.id, upload.files[0].id)


def test_completing_again_returns_the_first_result(conn, tenant):
    upload = an_upload(conn, tenant)
    send_parts(conn, upload)
    first = uploads.complete_upload(conn, tenant.id, upload.id, NOW)
    assert uploads.complete_upload(conn, tenant.id, upload.id, NOW + 9) == first
    assert len(jobs.list_jobs(conn, tenant.id)) == 1


def test_completing_again_after_the_job_failed_returns_that_job(conn, tenant):
    job = a_job(conn, tenant)
    claim = jobs.claim_job(conn, job.id, "w", NOW, 30)
    jobs.fail(conn, job.id, claim.token, Failure("pickle", "no"), NOW)
    _, again = uploads.complete_upload(conn, tenant.id, job.upload_id, NOW)
    assert (again.id, again.state) == (job.id, JobState.FAILED)


def test_racing_completes_make_one_job(db):
    with db.write() as conn:
        tenant = a_tenant(conn)
        upload = an_upload(conn, tenant)
        send_parts(conn, upload)

    def complete(_: int) -> tuple[str, str]:
        with db.write() as conn:
            revision, job = uploads.complete_upload(conn, tenant.id, upload.id, NOW)
            return revision.id, job.id

    with ThreadPoolExecutor(8) as pool:
        results = set(pool.map(complete, range(8)))
    with db.read() as conn:
        assert len(results) == len(jobs.list_jobs(conn, tenant.id)) == 1


def test_an_incomplete_upload_names_what_is_missing(conn, tenant):
    upload = an_upload(conn, tenant, "tiny", a_file("a"), TWO_PARTS)
    send(conn, upload, 1, "x", 8 * MIB, file=1)
    with pytest.raises(UploadIncomplete) as caught:
        uploads.complete_upload(conn, tenant.id, upload.id, NOW)
    assert caught.value.missing == (("a", 1), ("big.safetensors", 2))
    assert uploads.get_upload(conn, tenant.id, upload.id).state is UploadState.UPLOADING


def test_a_second_upload_of_a_model_is_its_next_revision(conn, tenant):
    first = a_job(conn, tenant, "tiny", a_file("a", "one"))
    second = a_job(conn, tenant, "tiny", a_file("a", "two"))
    numbers = [models.load_revision(conn, job.revision_id).number for job in (first, second)]
    assert numbers == [1, 2]
    assert first.model_id == second.model_id


def test_a_file_that_is_stored_needs_no_part(conn, tenant):
    first = a_job(conn, tenant, "tiny", a_file("a"))
    again = an_upload(conn, tenant, "copy", a_file("another name"))
    assert [f.needs_bytes for f in again.files] == [False]
    assert uploads.missing_parts(conn, tenant.id, again.id) == ()
    revision, _ = uploads.complete_upload(conn, tenant.id, again.id, NOW)
    stored = models.load_revision(conn, first.revision_id).files[0]
    assert revision.files[0].blob_key == stored.blob_key


def test_a_file_that_another_tenant_stored_is_not_known(conn, tenant):
    a_job(conn, tenant, "tiny", a_file("a"))
    upload = an_upload(conn, a_tenant(conn, "other"), "tiny", a_file("a"))
    assert [f.needs_bytes for f in upload.files] == [True]


def test_a_digest_announced_with_another_size_is_not_reused(conn, tenant):
    a_job(conn, tenant, "tiny", a_file("a", "weights"))
    upload = an_upload(conn, tenant, "tiny", FileSpec("a", 8, digest("weights")))
    assert [f.needs_bytes for f in upload.files] == [True]


def test_two_uploads_of_the_same_bytes_end_with_one_blob(conn, tenant):
    both = [an_upload(conn, tenant, name) for name in ("one", "two")]
    keys = set()
    for upload in both:
        send_parts(conn, upload)
        keys.add(uploads.complete_upload(conn, tenant.id, upload.id, NOW)[0].files[0].blob_key)
    assert len(keys) == 1
    spare = file_key(both[1].id, both[1].files[0].id)
    assert spare in uploads.leftover_keys(conn, tenant.id, both[1].id)
    assert file_key(both[0].id, both[0].files[0].id) not in uploads.leftover_keys(conn, tenant.id, both[0].id)


def test_after_complete_the_parts_are_left_over(conn, tenant):
    upload = an_upload(conn, tenant, "tiny", TWO_PARTS)
    send_parts(conn, upload)
    uploads.complete_upload(conn, tenant.id, upload.id, NOW)
    file = upload.files[0].id
    expected = (part_key(upload.id, file, 1), part_key(upload.id, file, 2))
    assert uploads.leftover_keys(conn, tenant.id, upload.id) == expected


def test_an_aborted_upload_takes_no_part_and_no_complete(conn, tenant):
    upload = an_upload(conn, tenant)
    assert uploads.abort_upload(conn, tenant.id, upload.id, NOW).state is UploadState.ABORTED
    assert uploads.abort_upload(conn, tenant.id, upload.id, NOW).state is UploadState.ABORTED
    with pytest.raises(IllegalTransition):
        send(conn, upload)
    with pytest.raises(IllegalTransition):
        uploads.complete_upload(conn, tenant.id, upload.id, NOW)


def test_a_completed_upload_can_not_be_aborted(conn, tenant):
    job = a_job(conn, tenant)
    with pytest.raises(IllegalTransition):
        uploads.abort_upload(conn, tenant.id, job.upload_id, NOW)


def test_a_failed_upload_keeps_its_first_reason(conn, tenant):
    upload = an_upload(conn, tenant)
    uploads.fail_upload(conn, upload.id, Failure("checksum_mismatch", "differs"), NOW)
    failed = uploads.fail_upload(conn, upload.id, Failure("other", "later"), NOW)
    assert (failed.state, failed.failure) == (U.FAILED, Failure("checksum_mismatch", "differs"))


def test_a_verified_upload_stays_ready_when_its_compile_fails(conn, tenant):
    job = a_job(conn, tenant)
    claim = jobs.claim_job(conn, job.id, "w", NOW, 30)
    uploads.mark_verified(conn, job.upload_id, NOW)
    jobs.fail(conn, job.id, claim.token, Failure("compile_failed", "no"), NOW)
    assert uploads.load_upload(conn, job.upload_id).state is UploadState.READY


U = UploadState
