"""Every SQL table, once. Owns names, types and constraints; queries live in the module of their noun.

A tenant is on every row. Times are Unix seconds (UTC), money is integer nano-USD. The migration chain in
`storage/migrations` builds exactly these tables, and a test compares the two.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import CheckConstraint, ForeignKey, Index, Text, UniqueConstraint
from sqlalchemy.schema import SchemaItem

from storage.columns import REAL, WHOLE, Flag, Json

metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def _table(name: str, *items: SchemaItem) -> sa.Table:
    return sa.Table(name, metadata, *items, sqlite_strict=True)


def _id() -> sa.Column[str]:
    return sa.Column("id", Text, primary_key=True)


def _tenant(**options: Any) -> sa.Column[str]:
    return sa.Column("tenant_id", Text, ForeignKey("tenants.id"), nullable=False, **options)


def _text(name: str, *items: SchemaItem) -> sa.Column[str]:
    return sa.Column(name, Text, *items, nullable=False)


def _maybe_text(name: str, *items: SchemaItem) -> sa.Column[str]:
    return sa.Column(name, Text, *items, nullable=True)


def _whole(name: str) -> sa.Column[int]:
    return sa.Column(name, WHOLE, nullable=False)


def _maybe_whole(name: str) -> sa.Column[int]:
    return sa.Column(name, WHOLE, nullable=True)


def _real(name: str) -> sa.Column[float]:
    return sa.Column(name, REAL, nullable=False)


def _maybe_real(name: str) -> sa.Column[float]:
    return sa.Column(name, REAL, nullable=True)


def _json(name: str) -> sa.Column[Any]:
    return sa.Column(name, Json, nullable=False)


def _failure() -> tuple[sa.Column[str], sa.Column[str]]:
    return _maybe_text("failure_code"), _maybe_text("failure_message")


tenants = _table(
    "tenants",
    _id(),
    sa.Column("name", Text, nullable=False, unique=True),
    _maybe_whole("spend_cap_nano_usd"),
    _real("created_at"),
)

api_keys = _table(
    "api_keys",
    _id(),
    _tenant(),
    _text("name"),
    _text("prefix"),
    sa.Column("secret_sha256", Text, nullable=False, unique=True),
    _text("scopes"),
    _maybe_whole("spend_cap_nano_usd"),
    _whole("spent_nano_usd"),
    _real("created_at"),
    _maybe_real("revoked_at"),
    Index("ix_api_keys_tenant_id", "tenant_id", "created_at"),
)

uploads = _table(
    "uploads",
    _id(),
    _tenant(),
    _text("model_name"),
    _text("state"),
    _json("options"),
    *_failure(),
    _maybe_text("revision_id"),
    _maybe_text("job_id"),
    _real("created_at"),
    _real("updated_at"),
    Index("ix_uploads_tenant_id", "tenant_id", "created_at"),
    Index("ix_uploads_revision_id", "revision_id"),
)

upload_files = _table(
    "upload_files",
    _id(),
    _tenant(),
    _text("upload_id", ForeignKey("uploads.id")),
    _whole("position"),
    _text("name"),
    _whole("size_bytes"),
    _text("sha256"),
    _whole("part_size_bytes"),
    _whole("part_count"),
    _maybe_text("reused_key"),
    UniqueConstraint("upload_id", "name"),
)

upload_parts = _table(
    "upload_parts",
    _tenant(),
    sa.Column("file_id", Text, ForeignKey("upload_files.id"), primary_key=True),
    sa.Column("number", WHOLE, primary_key=True, autoincrement=False),
    _whole("size_bytes"),
    _text("sha256"),
    _real("received_at"),
)

blobs = _table(
    "blobs",
    _tenant(primary_key=True),
    sa.Column("sha256", Text, primary_key=True),
    _whole("size_bytes"),
    sa.Column("blob_key", Text, nullable=False, unique=True),
    _real("created_at"),
)

models = _table(
    "models",
    _id(),
    _tenant(),
    _text("name"),
    _real("created_at"),
    _maybe_real("deleted_at"),
    Index(
        "uq_models_live_name",
        "tenant_id",
        "name",
        unique=True,
        sqlite_where=sa.text("deleted_at IS NULL"),
        postgresql_where=sa.text("deleted_at IS NULL"),
    ),
)

revisions = _table(
    "revisions",
    _id(),
    _tenant(),
    _text("model_id", ForeignKey("models.id")),
    _whole("number"),
    _text("state"),
    _json("options"),
    *_failure(),
    _maybe_text("build_key"),
    _maybe_text("artifact_prefix"),
    _maybe_text("tokenizer_prefix"),
    _json("info"),
    _real("created_at"),
    _maybe_real("ready_at"),
    UniqueConstraint("model_id", "number"),
)

revision_files = _table(
    "revision_files",
    _tenant(),
    sa.Column("revision_id", Text, ForeignKey("revisions.id"), primary_key=True),
    sa.Column("position", WHOLE, primary_key=True, autoincrement=False),
    _text("name"),
    _whole("size_bytes"),
    _text("sha256"),
    _text("blob_key"),
    UniqueConstraint("revision_id", "name"),
    Index("ix_revision_files_sha256", "tenant_id", "sha256"),
)

jobs = _table(
    "jobs",
    _id(),
    _tenant(),
    _text("model_id", ForeignKey("models.id")),
    _text("model_name"),
    _text("revision_id", ForeignKey("revisions.id")),
    _maybe_text("upload_id"),
    _text("state"),
    _json("options"),
    _whole("attempts"),
    _whole("losses"),
    _whole("token"),
    _maybe_text("worker_id"),
    _maybe_real("lease_expires_at"),
    _whole("event_seq"),
    _maybe_text("stage"),
    _real("fraction"),
    _maybe_whole("peak_rss_bytes"),
    *_failure(),
    _real("created_at"),
    _maybe_real("started_at"),
    _maybe_real("finished_at"),
    Index("ix_jobs_tenant_id", "tenant_id", "created_at"),
    Index("ix_jobs_state", "state", "lease_expires_at"),
    Index("ix_jobs_revision_id", "revision_id"),
)

job_events = _table(
    "job_events",
    _tenant(),
    sa.Column("job_id", Text, ForeignKey("jobs.id"), primary_key=True),
    sa.Column("seq", WHOLE, primary_key=True, autoincrement=False),
    _whole("attempt"),
    _text("kind"),
    _json("body"),
    _real("at"),
)

deployments = _table(
    "deployments",
    _id(),
    _tenant(),
    _text("name"),
    _text("model_id", ForeignKey("models.id")),
    _text("model_name"),
    _text("revision_id", ForeignKey("revisions.id")),
    _text("state"),
    _whole("min_replicas"),
    _whole("max_replicas"),
    _real("idle_timeout_s"),
    _whole("target_in_flight"),
    _whole("kv_ceiling_tokens"),
    *_failure(),
    _real("created_at"),
    _real("updated_at"),
    _maybe_real("deleted_at"),
    CheckConstraint("0 <= min_replicas AND min_replicas <= max_replicas", name="replica_range"),
    Index(
        "uq_deployments_live_name",
        "tenant_id",
        "name",
        unique=True,
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    ),
    Index("ix_deployments_state", "state"),
)

replicas = _table(
    "replicas",
    _id(),
    _tenant(),
    _text("deployment_id", ForeignKey("deployments.id")),
    _text("revision_id", ForeignKey("revisions.id")),
    _text("state"),
    _maybe_whole("pid"),
    _maybe_text("socket_path"),
    _maybe_text("reason"),
    _real("created_at"),
    _maybe_real("ready_at"),
    _maybe_real("gone_at"),
    _maybe_real("metered_until"),
    _whole("meter_epoch"),
    Index("ix_replicas_deployment_id", "deployment_id", "state"),
    Index("ix_replicas_tenant_id", "tenant_id", "created_at"),
)

replica_states = _table(
    "replica_states",
    _tenant(),
    sa.Column("replica_id", Text, ForeignKey("replicas.id"), primary_key=True),
    sa.Column("seq", WHOLE, primary_key=True, autoincrement=False),
    _text("deployment_id"),
    _text("state"),
    _maybe_text("reason"),
    _real("at"),
    Index("ix_replica_states_tenant_id", "tenant_id", "at"),
)

requests = _table(
    "requests",
    _id(),
    _tenant(),
    _maybe_text("api_key_id"),
    _maybe_text("client_request_id"),
    _maybe_text("deployment_id"),
    _text("model"),
    _text("endpoint"),
    sa.Column("is_stream", Flag, nullable=False),
    _text("status"),
    _maybe_whole("http_status"),
    _maybe_text("error_code"),
    _maybe_text("replica_id"),
    _whole("prompt_tokens"),
    _whole("cached_tokens"),
    _whole("completion_tokens"),
    _real("created_at"),
    _maybe_real("first_token_at"),
    _maybe_real("finished_at"),
    Index("ix_requests_tenant_id", "tenant_id", "created_at"),
    Index("ix_requests_status", "status"),
)

ledger = _table(
    "ledger",
    _tenant(primary_key=True),
    sa.Column("sequence", WHOLE, primary_key=True, autoincrement=False),
    _text("event_id"),
    _text("request_id"),
    _text("meter"),
    _whole("attempt_epoch"),
    _whole("quantity"),
    _whole("amount_nano_usd"),
    _text("price_version"),
    _maybe_text("deployment_id"),
    _text("model"),
    _maybe_text("api_key_id"),
    _whole("occurred_ms"),
    _whole("recorded_ms"),
    _text("prev_hash"),
    _text("hash"),
    UniqueConstraint("event_id"),
    CheckConstraint("quantity > 0", name="quantity_positive"),
    CheckConstraint("amount_nano_usd >= 0", name="amount_not_negative"),
    Index("ix_ledger_occurred", "tenant_id", "occurred_ms"),
    Index("ix_ledger_request_id", "tenant_id", "request_id"),
)

ledger_heads = _table(
    "ledger_heads",
    _tenant(primary_key=True),
    _whole("sequence"),
    _text("hash"),
    _whole("total_nano_usd"),
)

reservations = _table(
    "reservations",
    sa.Column("request_id", Text, primary_key=True),
    _tenant(),
    _maybe_text("api_key_id"),
    _maybe_text("deployment_id"),
    _text("model"),
    _maybe_text("replica_id"),
    _text("state"),
    _text("price_version"),
    _whole("attempt_epoch"),
    _whole("max_cost_nano_usd"),
    _whole("prompt_tokens"),
    _whole("cached_tokens"),
    _whole("completion_tokens"),
    _real("created_at"),
    _real("lease_expires_at"),
    _maybe_real("closed_at"),
    Index("ix_reservations_open", "state", "lease_expires_at"),
    Index("ix_reservations_tenant_id", "tenant_id", "state"),
)
