"""Servers that `candela up` runs by itself, so that a laptop needs neither Docker nor root."""

from storage.embedded.valkey import RunningValkey, start_valkey

__all__ = ["RunningValkey", "start_valkey"]
