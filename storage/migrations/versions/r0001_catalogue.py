"""Tenants, keys, uploads, models, revisions, jobs and deployments."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TEXT = sa.Text()
_WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_REAL: TypeEngine[Any] = sa.Double().with_variant(sa.REAL(), "sqlite")

_TABLES = (
    "tenants",
    "api_keys",
    "blobs",
    "models",
    "uploads",
    "revisions",
    "upload_files",
    "deployments",
    "jobs",
    "revision_files",
    "upload_parts",
    "job_events",
)


def upgrade() -> None:
    op.create_table(
        "tenants",
        sa.Column("id", _TEXT, nullable=False),
        sa.Column("name", _TEXT, nullable=False),
        sa.Column("spend_cap_nano_usd", _WHOLE, nullable=True),
        sa.Column("created_at", _REAL, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tenants"),
        sa.UniqueConstraint("name", name="uq_tenants_name"),
        sqlite_strict=True,
    )
    op.create_table(
        "api_keys",
        sa.Column("id", _TEXT, nullable=False),
        sa.Column("tenant_id", _TEXT, nullable=False),
        sa.Column("name", _TEXT, nullable=False),
        sa.Column("prefix", _TEXT, nullable=False),
        sa.Column("secret_sha256", _TEXT, nullable=False),
        sa.Column("scopes", _TEXT, nullable=False),
        sa.Column("spend_cap_nano_usd", _WHOLE, nullable=True),
        sa.Column("spent_nano_usd", _WHOLE, nullable=False),
        sa.Column("created_at", _REAL, nullable=False),
        sa.Column("revoked_at", _REAL, nullable=True),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_api_keys_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("secret_sha256", name="uq_api_keys_secret_sha256"),
        sqlite_strict=True,
    )
    op.create_index("ix_api_keys_tenant_id", "api_keys", ["tenant_id", "created_at"], unique=False)
    op.create_table(
        "blobs",
        sa.Column("tenant_id", _TEXT, nullable=False),
        sa.Column("sha256", _TEXT, nullable=False),
        sa.Column("size_bytes", _WHOLE, nullable=False),
        sa.Column("blob_key", _TEXT, nullable=False),
        sa.Column("created_at", _REAL, nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_blobs_tenant_id"),
        sa.PrimaryKeyConstraint("tenant_id", "sha256", name="pk_blobs"),
        sa.UniqueConstraint("blob_key", name="uq_blobs_blob_key"),
        sqlite_strict=True,
    )
    op.create_table(
        "models",
        sa.Column("id", _TEXT, nullable=False),
        sa.Column("tenant_id", _TEXT, nullable=False),
        sa.Column("name", _TEXT, nullable=False),
        sa.Column("created_at", _REAL, nullable=False),
        sa.Column("deleted_at", _REAL, nullable=True),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_models_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_models"),
        sqlite_strict=True,
    )
    op.create_index(
        "uq_models_live_name",
        "models",
        ["tenant_id", "name"],
        unique=True,
        sqlite_where=sa.text("deleted_at IS NULL"),
        postgresql_where=sa.text("deleted_at IS NULL"),
    )
    op.create_table(
        "uploads",
        sa.Column("id", _TEXT, nullable=False),
        sa.Column("tenant_id", _TEXT, nullable=False),
        sa.Column("model_name", _TEXT, nullable=False),
        sa.Column("state", _TEXT, nullable=False),
        sa.Column("options", _TEXT, nullable=False),
        sa.Column("failure_code", _TEXT, nullable=True),
        sa.Column("failure_message", _TEXT, nullable=True),
        sa.Column("revision_id", _TEXT, nullable=True),
        sa.Column("job_id", _TEXT, nullable=True),
        sa.Column("created_at", _REAL, nullable=False),
        sa.Column("updated_at", _REAL, nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_uploads_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_uploads"),
        sqlite_strict=True,
    )
    op.create_index("ix_uploads_revision_id", "uploads", ["revision_id"], unique=False)
    op.create_index("ix_uploads_tenant_id", "uploads", ["tenant_id", "created_at"], unique=False)
    op.create_table(
        "revisions",
        sa.Column("id", _TEXT, nullable=False),
        sa.Column("tenant_id", _TEXT, nullable=False),
        sa.Column("model_id", _TEXT, nullable=False),
        sa.Column("number", _WHOLE, nullable=False),
        sa.Column("state", _TEXT, nullable=False),
        sa.Column("options", _TEXT, nullable=False),
        sa.Column("failure_code", _TEXT, nullable=True),
        sa.Column("failure_message", _TEXT, nullable=True),
        sa.Column("build_key", _TEXT, nullable=True),
        sa.Column("artifact_prefix", _TEXT, nullable=True),
        sa.Column("tokenizer_prefix", _TEXT, nullable=True),
        sa.Column("info", _TEXT, nullable=False),
        sa.Column("created_at", _REAL, nullable=False),
        sa.Column("ready_at", _REAL, nullable=True),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_revisions_model_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_revisions_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_revisions"),
        sa.UniqueConstraint("model_id", "number", name="uq_revisions_model_id_number"),
        sqlite_strict=True,
    )
    op.create_table(
        "upload_files",
        sa.Column("id", _TEXT, nullable=False),
        sa.Column("tenant_id", _TEXT, nullable=False),
        sa.Column("upload_id", _TEXT, nullable=False),
        sa.Column("position", _WHOLE, nullable=False),
        sa.Column("name", _TEXT, nullable=False),
        sa.Column("size_bytes", _WHOLE, nullable=False),
        sa.Column("sha256", _TEXT, nullable=False),
        sa.Column("part_size_bytes", _WHOLE, nullable=False),
        sa.Column("part_count", _WHOLE, nullable=False),
        sa.Column("reused_key", _TEXT, nullable=True),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_upload_files_tenant_id"),
        sa.ForeignKeyConstraint(["upload_id"], ["uploads.id"], name="fk_upload_files_upload_id"),
        sa.PrimaryKeyConstraint("id", name="pk_upload_files"),
        sa.UniqueConstraint("upload_id", "name", name="uq_upload_files_upload_id_name"),
        sqlite_strict=True,
    )
    op.create_table(
        "deployments",
        sa.Column("id", _TEXT, nullable=False),
        sa.Column("tenant_id", _TEXT, nullable=False),
        sa.Column("name", _TEXT, nullable=False),
        sa.Column("model_id", _TEXT, nullable=False),
        sa.Column("model_name", _TEXT, nullable=False),
        sa.Column("revision_id", _TEXT, nullable=False),
        sa.Column("state", _TEXT, nullable=False),
        sa.Column("min_replicas", _WHOLE, nullable=False),
        sa.Column("max_replicas", _WHOLE, nullable=False),
        sa.Column("idle_timeout_s", _REAL, nullable=False),
        sa.Column("target_in_flight", _WHOLE, nullable=False),
        sa.Column("kv_ceiling_tokens", _WHOLE, nullable=False),
        sa.Column("failure_code", _TEXT, nullable=True),
        sa.Column("failure_message", _TEXT, nullable=True),
        sa.Column("created_at", _REAL, nullable=False),
        sa.Column("updated_at", _REAL, nullable=False),
        sa.Column("deleted_at", _REAL, nullable=True),
        sa.CheckConstraint(
            "0 <= min_replicas AND min_replicas <= max_replicas", name="ck_deployments_replica_range"
        ),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_deployments_model_id"),
        sa.ForeignKeyConstraint(["revision_id"], ["revisions.id"], name="fk_deployments_revision_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_deployments_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_deployments"),
        sqlite_strict=True,
    )
    op.create_index("ix_deployments_state", "deployments", ["state"], unique=False)
    op.create_index(
        "uq_deployments_live_name",
        "deployments",
        ["tenant_id", "name"],
        unique=True,
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", _TEXT, nullable=False),
        sa.Column("tenant_id", _TEXT, nullable=False),
        sa.Column("model_id", _TEXT, nullable=False),
        sa.Column("model_name", _TEXT, nullable=False),
        sa.Column("revision_id", _TEXT, nullable=False),
        sa.Column("upload_id", _TEXT, nullable=True),
        sa.Column("state", _TEXT, nullable=False),
        sa.Column("options", _TEXT, nullable=False),
        sa.Column("attempts", _WHOLE, nullable=False),
        sa.Column("losses", _WHOLE, nullable=False),
        sa.Column("token", _WHOLE, nullable=False),
        sa.Column("worker_id", _TEXT, nullable=True),
        sa.Column("lease_expires_at", _REAL, nullable=True),
        sa.Column("event_seq", _WHOLE, nullable=False),
        sa.Column("stage", _TEXT, nullable=True),
        sa.Column("fraction", _REAL, nullable=False),
        sa.Column("peak_rss_bytes", _WHOLE, nullable=True),
        sa.Column("failure_code", _TEXT, nullable=True),
        sa.Column("failure_message", _TEXT, nullable=True),
        sa.Column("created_at", _REAL, nullable=False),
        sa.Column("started_at", _REAL, nullable=True),
        sa.Column("finished_at", _REAL, nullable=True),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_jobs_model_id"),
        sa.ForeignKeyConstraint(["revision_id"], ["revisions.id"], name="fk_jobs_revision_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_jobs_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sqlite_strict=True,
    )
    op.create_index("ix_jobs_revision_id", "jobs", ["revision_id"], unique=False)
    op.create_index("ix_jobs_state", "jobs", ["state", "lease_expires_at"], unique=False)
    op.create_index("ix_jobs_tenant_id", "jobs", ["tenant_id", "created_at"], unique=False)
    op.create_table(
        "revision_files",
        sa.Column("tenant_id", _TEXT, nullable=False),
        sa.Column("revision_id", _TEXT, nullable=False),
        sa.Column("position", _WHOLE, autoincrement=False, nullable=False),
        sa.Column("name", _TEXT, nullable=False),
        sa.Column("size_bytes", _WHOLE, nullable=False),
        sa.Column("sha256", _TEXT, nullable=False),
        sa.Column("blob_key", _TEXT, nullable=False),
        sa.ForeignKeyConstraint(["revision_id"], ["revisions.id"], name="fk_revision_files_revision_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_revision_files_tenant_id"),
        sa.PrimaryKeyConstraint("revision_id", "position", name="pk_revision_files"),
        sa.UniqueConstraint("revision_id", "name", name="uq_revision_files_revision_id_name"),
        sqlite_strict=True,
    )
    op.create_index("ix_revision_files_sha256", "revision_files", ["tenant_id", "sha256"], unique=False)
    op.create_table(
        "upload_parts",
        sa.Column("tenant_id", _TEXT, nullable=False),
        sa.Column("file_id", _TEXT, nullable=False),
        sa.Column("number", _WHOLE, autoincrement=False, nullable=False),
        sa.Column("size_bytes", _WHOLE, nullable=False),
        sa.Column("sha256", _TEXT, nullable=False),
        sa.Column("received_at", _REAL, nullable=False),
        sa.ForeignKeyConstraint(["file_id"], ["upload_files.id"], name="fk_upload_parts_file_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_upload_parts_tenant_id"),
        sa.PrimaryKeyConstraint("file_id", "number", name="pk_upload_parts"),
        sqlite_strict=True,
    )
    op.create_table(
        "job_events",
        sa.Column("tenant_id", _TEXT, nullable=False),
        sa.Column("job_id", _TEXT, nullable=False),
        sa.Column("seq", _WHOLE, autoincrement=False, nullable=False),
        sa.Column("attempt", _WHOLE, nullable=False),
        sa.Column("kind", _TEXT, nullable=False),
        sa.Column("body", _TEXT, nullable=False),
        sa.Column("at", _REAL, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_job_events_job_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_job_events_tenant_id"),
        sa.PrimaryKeyConstraint("job_id", "seq", name="pk_job_events"),
        sqlite_strict=True,
    )


def downgrade() -> None:
    for table in reversed(_TABLES):
        op.drop_table(table)
