"""The one migration chain. Alembic runs it; `storage.upgrade` starts Alembic."""
