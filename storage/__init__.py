"""State: SQL tables and queries, blobs, leases and signals in Redis, the Celery app, ledger and prices."""
