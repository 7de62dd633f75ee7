"""`candela job list` as a user runs it, against a real gateway: a failed job says why."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from storage import jobs
from storage.records import Failure
from tests.support.gateway_process import GatewayProcess
from tests.support.storage_rows import a_job

WHY = Failure("bad_header", "model.safetensors: the header\nis not JSON")


def test_the_job_list_shows_why_a_job_failed(process: GatewayProcess) -> None:
    with process.database.write() as conn:
        job = a_job(conn, process.tenant, "failing")
        claim = jobs.claim_job(conn, job.id, "wrk_1", time.time(), 30.0)
        assert claim is not None
        jobs.fail(conn, job.id, claim.token, WHY, time.time())
    process.start()
    listed = subprocess.run(
        [sys.executable, "-m", "candela.cli", "job", "list", "--state", "failed"],
        env={**os.environ, "CANDELA_URL": process.url, "CANDELA_API_KEY": process.secret},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    headings, row = listed.stdout.splitlines()
    assert headings.endswith("FAILURE")
    assert row.startswith(job.id)
    assert row.endswith("bad_header: model.safetensors: the header is not JSON")
