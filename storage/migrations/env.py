"""Alembic's entry: runs the chain on the connection and in the transaction that `storage.upgrade` opened."""

from __future__ import annotations

from alembic import context

from storage.tables import metadata


def run() -> None:
    connection = context.config.attributes["connection"]
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
    context.run_migrations()


run()
