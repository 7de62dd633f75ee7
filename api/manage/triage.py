"""Judging an upload when it is announced: every problem that names, sizes, config and headers show. Pure."""

from __future__ import annotations

import base64
import binascii

from api.manage.schema import NewUpload
from common.errors import InvalidInput, Problem, UploadRefused
from compiler import checkpoint
from storage.parts import DEFAULT_PART_BYTES, check_files
from storage.records import FileSpec

_STORAGES_OWN = {"duplicate_file", "bad_digest", "bad_part_size", "file_too_large"}
"""Problems that only storage's check finds; the checkpoint's triage words the others better."""


def judge(body: NewUpload) -> tuple[FileSpec, ...]:
    """The announced files, when nothing is wrong with them.

    Raises: UploadRefused: with every problem found; InvalidInput: a header that is not base64.
    """
    specs = tuple(FileSpec(f.name, f.size_bytes, f.sha256) for f in body.files)
    sizes = {spec.name: spec.size_bytes for spec in specs}
    headers = {name: _header(name, value) for name, value in body.weight_headers.items()}
    problems = [
        Problem(str(p.code), p.message, p.where) for p in checkpoint.triage(sizes, body.config, headers)
    ]
    problems += _storage_problems(specs, body.part_size_bytes or DEFAULT_PART_BYTES)
    if problems:
        raise UploadRefused(tuple(problems))
    return specs


def _header(name: str, value: object) -> checkpoint.Header:
    if isinstance(value, dict):
        return value
    assert isinstance(value, str), "the schema allows an object or a string"
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise InvalidInput(f"the header of {name!r:.100} is not base64", param="weight_headers") from error


def _storage_problems(specs: tuple[FileSpec, ...], part_size_bytes: int) -> list[Problem]:
    try:
        check_files(specs, part_size_bytes)
    except UploadRefused as refused:
        return [p for p in refused.problems if p.code in _STORAGES_OWN]
    return []
