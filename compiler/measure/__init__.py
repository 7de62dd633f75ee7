"""Trying candidates on this machine: builds, the child process, the lock on its clock, and the journal."""
