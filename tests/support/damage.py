"""What failing disks do to files."""

from __future__ import annotations

import os
from pathlib import Path


def truncate(path: Path) -> None:
    """Lose the last byte."""
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    """Change one bit, and nothing that `stat` shows but the time of change."""
    before, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
