"""Identifiers: UUIDv7 (time-ordered) with a prefix that says what they name, e.g. `job_0192...`."""

from __future__ import annotations

import os
import time
import uuid
from enum import StrEnum


class Kind(StrEnum):
    """What an identifier names; the value is its prefix."""

    TENANT = "ten"
    KEY = "key"
    UPLOAD = "upl"
    MODEL = "mod"
    REVISION = "rev"
    JOB = "job"
    DEPLOYMENT = "dep"
    REPLICA = "rep"
    REQUEST = "req"
    WORKER = "wrk"


def uuid7(now_ms: int, random: bytes) -> uuid.UUID:
    """UUID version 7 from a Unix time in milliseconds and 10 random bytes. Source: RFC 9562, section 5.7."""
    assert len(random) == 10, "UUIDv7 needs 74 random bits, taken from 10 bytes"
    value = (now_ms & ((1 << 48) - 1)) << 80 | int.from_bytes(random, "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return uuid.UUID(int=value)


def new_id(kind: Kind) -> str:
    """Mint an id such as `job_0192f0c1...` (prefix, underscore, 32 hex digits); sorts by time
    within a kind.
    """
    return f"{kind}_{uuid7(time.time_ns() // 1_000_000, os.urandom(10)).hex}"
