"""Migrations, in order. Each is frozen once released: it imports nothing of ours."""
