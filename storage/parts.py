"""How a file is cut into parts, and which file names are accepted. Pure; used before an upload is created.

Source: S3 multipart limits (10,000 parts; 5 MiB to 5 GiB a part, the last of any size).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from common.errors import Problem, UploadRefused
from storage.records import FileSpec

MIB = 1 << 20
DEFAULT_PART_BYTES = 8 * MIB
MIN_PART_BYTES = 5 * MIB
MAX_PART_BYTES = 5 << 30
MAX_PARTS = 10_000
MAX_FILES = 1_000
MAX_FILE_BYTES = MAX_PARTS * MAX_PART_BYTES

_MAX_NAME_BYTES = 1024
_MAX_SEGMENT_BYTES = 255
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class PartPlan:
    """`part_count` parts of `part_size_bytes`, numbered from 1; the last has what is left."""

    size_bytes: int
    part_size_bytes: int
    part_count: int

    def length_of(self, number: int) -> int:
        """Bytes of part `number`.

        Raises: IndexError: the plan has no such part.
        """
        if not 1 <= number <= self.part_count:
            raise IndexError(f"part {number} of {self.part_count}")
        if number < self.part_count:
            return self.part_size_bytes
        return self.size_bytes - self.part_size_bytes * (self.part_count - 1)


def plan_parts(size_bytes: int, part_size_bytes: int = DEFAULT_PART_BYTES) -> PartPlan:
    """Cut `size_bytes` into at most 10,000 parts of at least `part_size_bytes`, grown to a whole MiB.

    Raises: ValueError: a size or part size outside the limits.
    """
    if not 1 <= size_bytes <= MAX_FILE_BYTES:
        raise ValueError(f"a file has 1 to {MAX_FILE_BYTES} bytes, not {size_bytes}")
    if not MIN_PART_BYTES <= part_size_bytes <= MAX_PART_BYTES:
        raise ValueError(f"a part has {MIN_PART_BYTES} to {MAX_PART_BYTES} bytes, not {part_size_bytes}")
    needed = -(-size_bytes // MAX_PARTS)
    size = part_size_bytes if part_size_bytes >= needed else -(-needed // MIB) * MIB
    return PartPlan(size_bytes, size, -(-size_bytes // size))


def is_safe_name(name: str) -> bool:
    """Whether `name` is a relative path of plain segments that stays inside any directory it is joined to."""
    if "\\" in name or not name.isprintable():  # a lone surrogate, which has no bytes, is not printable
        return False
    segments = name.split("/")
    if len(name.encode()) > _MAX_NAME_BYTES or any(len(s.encode()) > _MAX_SEGMENT_BYTES for s in segments):
        return False
    return all(segment not in ("", ".", "..") for segment in segments)


def check_files(files: Sequence[FileSpec], part_size_bytes: int = DEFAULT_PART_BYTES) -> None:
    """Raises: UploadRefused: with every problem of names, sizes and digests."""
    problems = [problem for spec in files for problem in _problems(spec)]
    if not files:
        problems.append(Problem("no_files", "an upload needs at least one file"))
    if len(files) > MAX_FILES:
        problems.append(
            Problem("too_many_files", f"an upload has at most {MAX_FILES} files, not {len(files)}")
        )
    for name, count in Counter(spec.name for spec in files).items():
        if count > 1:
            problems.append(Problem("duplicate_file", f"file {name!r} is listed {count} times", name))
    if not MIN_PART_BYTES <= part_size_bytes <= MAX_PART_BYTES:
        text = f"part_size must be {MIN_PART_BYTES} to {MAX_PART_BYTES} bytes, not {part_size_bytes}"
        problems.append(Problem("bad_part_size", text))
    if problems:
        raise UploadRefused(tuple(problems))


def _problems(spec: FileSpec) -> list[Problem]:
    found = []
    if not is_safe_name(spec.name):
        text = f"file name {spec.name!r:.80} is not a plain relative path"
        found.append(Problem("bad_file_name", text, spec.name))
    if spec.size_bytes <= 0:
        found.append(Problem("empty_file", f"file {spec.name!r} has {spec.size_bytes} bytes", spec.name))
    if spec.size_bytes > MAX_FILE_BYTES:
        text = f"file {spec.name!r} has {spec.size_bytes} bytes; at most {MAX_FILE_BYTES} fit in 10,000 parts"
        found.append(Problem("file_too_large", text, spec.name))
    if _DIGEST.fullmatch(spec.sha256) is None:
        text = f"sha256 of {spec.name!r} must be 64 lower-case hex digits"
        found.append(Problem("bad_digest", text, spec.name))
    return found
