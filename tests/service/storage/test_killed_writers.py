"""Processes that write one SQLite file and are killed: acknowledged rows stay, and the chain holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from storage import ledger
from storage.db import Database, migrate
from tests.support.storage_rows import a_tenant

SCRIPT = Path(__file__).parent / "ledger_writer.py"
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def url(tmp_path):
    address = f"sqlite:///{tmp_path / 'candela.db'}"
    migrate(address)
    return address


def start(url, tenant, name):
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), url, tenant.id, name],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )


def kill_after(process, lines):
    """Read `lines` acknowledgements, kill, and give the last number that was acknowledged at all."""
    for _ in range(lines):
        process.stdout.readline()
    process.kill()
    rest = process.stdout.read().split()
    process.wait()
    return int(rest[-1]) if rest else lines


def test_acknowledged_events_survive_kills_of_their_writers(url):
    database = Database(url)
    with database.write() as conn:
        tenant = a_tenant(conn)
    writers = [start(url, tenant, name) for name in ("a", "b", "c")]
    acknowledged = [kill_after(writer, lines) for writer, lines in zip(writers, (30, 60, 90), strict=True)]
    with database.read() as conn:
        report = ledger.verify_chain(conn, tenant.id)
    database.close()
    assert report.is_intact
    assert sum(acknowledged) <= report.rows <= sum(acknowledged) + len(writers)
