"""Request rows."""

from __future__ import annotations

import pytest

from storage import requests
from storage.errors import RequestNotFound
from storage.records import RequestStatus, TokenCounts
from storage.tables import requests as table
from tests.support.storage_rows import NOW, a_tenant

COUNTS = TokenCounts(prompt_tokens=12, completion_tokens=30, cached_tokens=4)


def open_one(conn, tenant, request_id="req_1", **more):
    requests.open_request(
        conn,
        request_id,
        tenant.id,
        model="chat",
        endpoint="/v1/chat/completions",
        is_stream=True,
        now=NOW,
        **more,
    )


def finish(conn, request_id="req_1", status=RequestStatus.SUCCEEDED, http_status=200):
    return requests.finish_request(
        conn,
        request_id,
        status,
        http_status=http_status,
        counts=COUNTS,
        now=NOW + 3,
        replica_id="rep_1",
        first_token_at=NOW + 1,
    )


def test_a_request_is_open_until_it_ends(conn, tenant):
    open_one(conn, tenant, client_request_id="mine", deployment_id="dep_1", api_key_id="key_1")
    row = requests.get_request(conn, tenant.id, "req_1")
    assert (row.status, row.is_stream, row.finished_at) == (RequestStatus.OPEN, True, None)
    assert (row.client_request_id, row.deployment_id, row.api_key_id) == ("mine", "dep_1", "key_1")


def test_a_finished_request_has_counts_and_times(conn, tenant):
    open_one(conn, tenant)
    assert finish(conn)
    row = requests.get_request(conn, tenant.id, "req_1")
    assert (row.status, row.http_status, row.counts) == (RequestStatus.SUCCEEDED, 200, COUNTS)
    assert (row.first_token_at, row.finished_at, row.replica_id) == (NOW + 1, NOW + 3, "rep_1")


def test_the_first_end_stands(conn, tenant):
    open_one(conn, tenant)
    finish(conn, status=RequestStatus.CANCELLED, http_status=499)
    assert not finish(conn)
    assert requests.get_request(conn, tenant.id, "req_1").http_status == 499


def test_requests_are_paged_newest_first(conn, tenant):
    for n in range(3):
        open_one(conn, tenant, f"req_{n}", deployment_id=f"dep_{n % 2}")
    assert [r.id for r in requests.list_requests(conn, tenant.id, limit=2)] == ["req_2", "req_1"]
    assert [r.id for r in requests.list_requests(conn, tenant.id, before="req_1")] == ["req_0"]
    assert [r.id for r in requests.list_requests(conn, tenant.id, deployment_id="dep_1")] == ["req_1"]


def test_another_tenants_request_does_not_exist(conn, tenant):
    open_one(conn, tenant)
    other = a_tenant(conn, "other")
    assert requests.list_requests(conn, other.id) == ()
    with pytest.raises(RequestNotFound):
        requests.get_request(conn, other.id, "req_1")


def test_a_row_has_no_place_for_a_prompt():
    assert not {"prompt", "messages", "input", "output", "text", "body"} & set(table.columns.keys())
