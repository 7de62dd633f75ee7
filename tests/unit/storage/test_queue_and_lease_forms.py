"""What goes to Redis: the Celery settings that correctness leans on, and the forms of leases and signals."""

from __future__ import annotations

import subprocess
import sys

import pytest

from common.wire import ReplicaState
from storage.lease_keys import (
    Change,
    ReplicaLease,
    change_message,
    decode_change,
    decode_held,
    decode_lease,
    encode_held,
    encode_lease,
)
from storage.queue import COMPILE_QUEUE, make_celery
from tests.support.storage_rows import NOW

LEASE = ReplicaLease(
    "rep_1",
    "dep_1",
    "rev_1",
    "ten_1",
    "/run/r.sock",
    "s3cret",
    ReplicaState.READY,
    1,
    2,
    8,
    100,
    7,
    (("map", 0.25),),
)


@pytest.mark.pitfall("U7")
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("task_acks_late", False),
        ("task_reject_on_worker_lost", False),
        ("task_ignore_result", True),
        ("result_backend", None),
        ("task_serializer", "json"),
        ("accept_content", ["json"]),
        ("task_default_queue", COMPILE_QUEUE),
        ("worker_prefetch_multiplier", 1),
        ("worker_hijack_root_logger", False),
    ],
)
def test_celery_is_set_so_that_the_jobs_table_decides(setting, value):
    assert getattr(make_celery("redis://127.0.0.1:1/0").conf, setting) == value


@pytest.mark.pitfall("U1")
def test_the_broker_never_redelivers_within_a_compile():
    options = make_celery("redis://127.0.0.1:1/0").conf.broker_transport_options
    assert options["visibility_timeout"] >= 86_400


def test_a_lease_reads_back_as_it_was_written():
    assert decode_lease(encode_lease(LEASE)) == LEASE


def test_a_leases_secret_is_not_printed():
    assert "s3cret" not in repr(LEASE)
    assert "s3cret" not in str([LEASE])


@pytest.mark.parametrize("change", [Change("wake", "dep_1"), Change("lease", "dep_1")])
def test_a_change_reads_back_as_it_was_written(change):
    assert decode_change(change_message(change)) == change


def test_a_message_of_someone_else_is_no_change():
    assert decode_change("hello dep_1") is None


def test_a_held_count_is_forgotten_when_it_is_old():
    text = encode_held(3, NOW + 10)
    assert (decode_held(text, NOW + 9), decode_held(text, NOW + 11)) == (3, 0)


def test_storage_loads_neither_torch_nor_numpy():
    modules = "storage.db, storage.uploads, storage.models, storage.ledger, storage.leases, storage.blobs"
    code = f"import sys, {modules}, storage.replicas; print({{'torch', 'numpy'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
