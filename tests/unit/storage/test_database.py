"""Transactions of the database handle."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from storage.db import Database, is_writing
from storage.keys import create_tenant, list_tenants
from storage.tables import requests, tenants
from tests.support.storage_rows import NOW, a_tenant


def test_a_write_is_kept_when_its_block_ends(db):
    with db.write() as conn:
        a_tenant(conn)
    with db.read() as conn:
        assert [t.name for t in list_tenants(conn)] == ["acme"]


def test_a_write_is_undone_when_its_block_raises(db):
    with pytest.raises(RuntimeError), db.write() as conn:  # noqa: PT012
        a_tenant(conn)
        raise RuntimeError
    with db.read() as conn:
        assert list_tenants(conn) == ()


def test_nothing_written_while_reading_is_kept(db):
    with db.read() as conn:
        a_tenant(conn)
    with db.read() as conn:
        assert list_tenants(conn) == ()


def test_a_connection_knows_whether_it_writes(db):
    with db.read() as conn:
        assert not is_writing(conn)
    with db.write() as conn:
        assert is_writing(conn)


def test_a_read_connection_given_back_does_not_come_out_as_a_writer(db):
    with db.write():
        pass
    with db.read() as conn:
        assert not is_writing(conn)


def test_a_row_needs_its_tenant(db):
    with pytest.raises(sa.exc.IntegrityError), db.write() as conn:
        conn.execute(
            sa.insert(requests).values(
                id="req_1",
                tenant_id="nobody",
                model="m",
                endpoint="e",
                is_stream=False,
                status="open",
                prompt_tokens=0,
                cached_tokens=0,
                completion_tokens=0,
                created_at=NOW,
            )
        )


def test_a_column_refuses_a_value_of_another_type(db):
    with pytest.raises((sa.exc.IntegrityError, sa.exc.DataError)), db.write() as conn:
        conn.execute(
            sa.text(
                "INSERT INTO tenants (id, name, spend_cap_nano_usd, created_at) VALUES ('a', 'b', 'much', 0)"
            )
        )


def test_writers_of_one_process_take_turns(db):
    with db.write() as conn:
        create_tenant(conn, "counter", NOW, spend_cap_nano_usd=0)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: _add_one(db), range(80)))
    with db.read() as conn:
        assert conn.execute(sa.select(tenants.c.spend_cap_nano_usd)).scalar_one() == 80


def test_writers_of_two_handles_wait_for_each_other(db, database_url):
    other = Database(database_url)
    with db.write() as conn:
        create_tenant(conn, "counter", NOW, spend_cap_nano_usd=0)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(_add_one, [db, other] * 20))
    with other.read() as conn:
        assert conn.execute(sa.select(tenants.c.spend_cap_nano_usd)).scalar_one() == 40
    other.close()


def test_a_reader_does_not_wait_for_a_writer(db):
    seen: list[int] = []
    with db.write() as conn:
        a_tenant(conn)
        thread = threading.Thread(target=lambda: seen.append(_count(db)))
        thread.start()
        thread.join(5.0)
    assert seen == [0]


def test_a_write_inside_a_write_is_caught_at_once(db):
    with db.write(), pytest.raises(AssertionError), db.write():
        pass
    with db.write() as conn:
        assert is_writing(conn)


def test_a_reader_sees_one_moment(db):
    with db.read() as conn:
        assert list_tenants(conn) == ()
        with db.write() as writer:
            a_tenant(writer)
        assert list_tenants(conn) == ()


def _add_one(db):
    with db.write() as conn:
        query = sa.select(tenants.c.spend_cap_nano_usd).with_for_update()
        value = conn.execute(query).scalar_one()
        conn.execute(sa.update(tenants).values(spend_cap_nano_usd=value + 1))


def _count(db):
    with db.read() as conn:
        return len(list_tenants(conn))
