"""Replicas, requests, reservations, and a ledger that refuses to be rewritten."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_TEXT = sa.Text()
_WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_REAL: TypeEngine[Any] = sa.Double().with_variant(sa.REAL(), "sqlite")
_FLAG = sa.Boolean().with_variant(sa.Integer(), "sqlite")

_TABLES = ("ledger", "ledger_heads", "requests", "reservations", "replicas", "replica_states")


def upgrade() -> None:
    op.create_table(
        "ledger",
        sa.Column("tenant_id", _TEXT, nullable=False),
        sa.Column("sequence", _WHOLE, autoincrement=False, nullable=False),
        sa.Column("event_id", _TEXT, nullable=False),
        sa.Column("request_id", _TEXT, nullable=False),
        sa.Column("meter", _TEXT, nullable=False),
        sa.Column("attempt_epoch", _WHOLE, nullable=False),
        sa.Column("quantity", _WHOLE, nullable=False),
        sa.Column("amount_nano_usd", _WHOLE, nullable=False),
        sa.Column("price_version", _TEXT, nullable=False),
        sa.Column("deployment_id", _TEXT, nullable=True),
        sa.Column("model", _TEXT, nullable=False),
        sa.Column("api_key_id", _TEXT, nullable=True),
        sa.Column("occurred_ms", _WHOLE, nullable=False),
        sa.Column("recorded_ms", _WHOLE, nullable=False),
        sa.Column("prev_hash", _TEXT, nullable=False),
        sa.Column("hash", _TEXT, nullable=False),
        sa.CheckConstraint("amount_nano_usd >= 0", name="ck_ledger_amount_not_negative"),
        sa.CheckConstraint("quantity > 0", name="ck_ledger_quantity_positive"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_ledger_tenant_id"),
        sa.PrimaryKeyConstraint("tenant_id", "sequence", name="pk_ledger"),
        sa.UniqueConstraint("event_id", name="uq_ledger_event_id"),
        sqlite_strict=True,
    )
    op.create_index("ix_ledger_occurred", "ledger", ["tenant_id", "occurred_ms"], unique=False)
    op.create_index("ix_ledger_request_id", "ledger", ["tenant_id", "request_id"], unique=False)
    op.create_table(
        "ledger_heads",
        sa.Column("tenant_id", _TEXT, nullable=False),
        sa.Column("sequence", _WHOLE, nullable=False),
        sa.Column("hash", _TEXT, nullable=False),
        sa.Column("total_nano_usd", _WHOLE, nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_ledger_heads_tenant_id"),
        sa.PrimaryKeyConstraint("tenant_id", name="pk_ledger_heads"),
        sqlite_strict=True,
    )
    op.create_table(
        "requests",
        sa.Column("id", _TEXT, nullable=False),
        sa.Column("tenant_id", _TEXT, nullable=False),
        sa.Column("api_key_id", _TEXT, nullable=True),
        sa.Column("client_request_id", _TEXT, nullable=True),
        sa.Column("deployment_id", _TEXT, nullable=True),
        sa.Column("model", _TEXT, nullable=False),
        sa.Column("endpoint", _TEXT, nullable=False),
        sa.Column("is_stream", _FLAG, nullable=False),
        sa.Column("status", _TEXT, nullable=False),
        sa.Column("http_status", _WHOLE, nullable=True),
        sa.Column("error_code", _TEXT, nullable=True),
        sa.Column("replica_id", _TEXT, nullable=True),
        sa.Column("prompt_tokens", _WHOLE, nullable=False),
        sa.Column("cached_tokens", _WHOLE, nullable=False),
        sa.Column("completion_tokens", _WHOLE, nullable=False),
        sa.Column("created_at", _REAL, nullable=False),
        sa.Column("first_token_at", _REAL, nullable=True),
        sa.Column("finished_at", _REAL, nullable=True),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_requests_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_requests"),
        sqlite_strict=True,
    )
    op.create_index("ix_requests_status", "requests", ["status"], unique=False)
    op.create_index("ix_requests_tenant_id", "requests", ["tenant_id", "created_at"], unique=False)
    op.create_table(
        "reservations",
        sa.Column("request_id", _TEXT, nullable=False),
        sa.Column("tenant_id", _TEXT, nullable=False),
        sa.Column("api_key_id", _TEXT, nullable=True),
        sa.Column("deployment_id", _TEXT, nullable=True),
        sa.Column("model", _TEXT, nullable=False),
        sa.Column("replica_id", _TEXT, nullable=True),
        sa.Column("state", _TEXT, nullable=False),
        sa.Column("price_version", _TEXT, nullable=False),
        sa.Column("attempt_epoch", _WHOLE, nullable=False),
        sa.Column("max_cost_nano_usd", _WHOLE, nullable=False),
        sa.Column("prompt_tokens", _WHOLE, nullable=False),
        sa.Column("cached_tokens", _WHOLE, nullable=False),
        sa.Column("completion_tokens", _WHOLE, nullable=False),
        sa.Column("created_at", _REAL, nullable=False),
        sa.Column("lease_expires_at", _REAL, nullable=False),
        sa.Column("closed_at", _REAL, nullable=True),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_reservations_tenant_id"),
        sa.PrimaryKeyConstraint("request_id", name="pk_reservations"),
        sqlite_strict=True,
    )
    op.create_index("ix_reservations_open", "reservations", ["state", "lease_expires_at"], unique=False)
    op.create_index("ix_reservations_tenant_id", "reservations", ["tenant_id", "state"], unique=False)
    op.create_table(
        "replicas",
        sa.Column("id", _TEXT, nullable=False),
        sa.Column("tenant_id", _TEXT, nullable=False),
        sa.Column("deployment_id", _TEXT, nullable=False),
        sa.Column("revision_id", _TEXT, nullable=False),
        sa.Column("state", _TEXT, nullable=False),
        sa.Column("pid", _WHOLE, nullable=True),
        sa.Column("socket_path", _TEXT, nullable=True),
        sa.Column("reason", _TEXT, nullable=True),
        sa.Column("created_at", _REAL, nullable=False),
        sa.Column("ready_at", _REAL, nullable=True),
        sa.Column("gone_at", _REAL, nullable=True),
        sa.Column("metered_until", _REAL, nullable=True),
        sa.Column("meter_epoch", _WHOLE, nullable=False),
        sa.ForeignKeyConstraint(["deployment_id"], ["deployments.id"], name="fk_replicas_deployment_id"),
        sa.ForeignKeyConstraint(["revision_id"], ["revisions.id"], name="fk_replicas_revision_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_replicas_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_replicas"),
        sqlite_strict=True,
    )
    op.create_index("ix_replicas_deployment_id", "replicas", ["deployment_id", "state"], unique=False)
    op.create_index("ix_replicas_tenant_id", "replicas", ["tenant_id", "created_at"], unique=False)
    op.create_table(
        "replica_states",
        sa.Column("tenant_id", _TEXT, nullable=False),
        sa.Column("replica_id", _TEXT, nullable=False),
        sa.Column("seq", _WHOLE, autoincrement=False, nullable=False),
        sa.Column("deployment_id", _TEXT, nullable=False),
        sa.Column("state", _TEXT, nullable=False),
        sa.Column("reason", _TEXT, nullable=True),
        sa.Column("at", _REAL, nullable=False),
        sa.ForeignKeyConstraint(["replica_id"], ["replicas.id"], name="fk_replica_states_replica_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_replica_states_tenant_id"),
        sa.PrimaryKeyConstraint("replica_id", "seq", name="pk_replica_states"),
        sqlite_strict=True,
    )
    op.create_index("ix_replica_states_tenant_id", "replica_states", ["tenant_id", "at"], unique=False)
    _make_ledger_append_only()


def downgrade() -> None:
    for table in reversed(_TABLES):
        op.drop_table(table)
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION candela_refuse()")


def _make_ledger_append_only() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER ledger_no_{verb.lower()} BEFORE {verb} ON ledger "
                "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
            )
        return
    op.execute(
        "CREATE FUNCTION candela_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$"
    )
    op.execute(
        "CREATE TRIGGER ledger_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger "
        "FOR EACH STATEMENT EXECUTE FUNCTION candela_refuse()"
    )
