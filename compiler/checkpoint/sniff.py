"""Tell from the first bytes what a file called a checkpoint really is: a pickle, a pointer, a web page."""

from __future__ import annotations

from compiler.checkpoint.errors import Problem, ProblemCode

SNIFF_BYTES = 64
_LFS = b"version https://git-lfs.github.com/spec/"
_ZIP = b"PK\x03\x04"
_PICKLE_PROTOCOLS = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))
_FRAMES = (b"c", b"}", b"]", b"(", b"\x95", b"\x8a", b"K", b"M", b"J", b"X", b"\x8c", b"N")
_MARKUP = (b"<!doctype", b"<html", b"<?xml")


def sniff(head: bytes, where: str) -> Problem | None:
    """What the first bytes of a weight, config or tokenizer file give away, if they are something else."""
    if head.startswith(_LFS):
        message = f"{where} is a Git LFS pointer, not the file itself; run `git lfs pull` and upload again"
        return Problem(ProblemCode.LFS_POINTER, message, where)
    if is_pickle(head):
        message = f"{where} holds a pickle, which can run code when read; {PICKLE_ADVICE}"
        return Problem(ProblemCode.UNEXPECTED_PICKLE, message, where)
    if head.lstrip().lower().startswith(_MARKUP):
        message = f"{where} is a web page, not a checkpoint; the download needs a login or another address"
        return Problem(ProblemCode.BAD_HEADER, message, where)
    return None


PICKLE_ADVICE = "save the model with safetensors (`model.save_pretrained(dir, safe_serialization=True)`)"


def is_pickle(head: bytes) -> bool:
    """True for a zip archive (torch's format since 1.6) and for a bare pickle of protocol 2 to 5.

    A safetensors length may start with the same two bytes, but then a JSON object follows at byte 8.
    """
    if head.startswith(_ZIP):
        return True
    return head.startswith(_PICKLE_PROTOCOLS) and head[2:3] in _FRAMES and head[8:9] != b"{"
