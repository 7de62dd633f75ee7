"""Typed errors of a compile attempt. Their codes end up on Job, Upload and Revision, so they never change."""

from __future__ import annotations

from common.errors import PlatformError


class CompileFailed(PlatformError):
    """The checkpoint cannot become an artifact; `code` is the compiler's or the checkpoint check's own."""

    code = "compile_failed"

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message, code=code)


class InvalidCompileOptions(PlatformError):
    code = "invalid_compile_options"


class CompileOutOfMemory(PlatformError):
    """The compile went over its memory limit and was killed; a second attempt would end the same way."""

    code = "compile_out_of_memory"

    def __init__(self, peak_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"the compile used {peak_bytes >> 20} MiB and its limit is {limit_bytes >> 20} MiB: "
            "raise CANDELA_COMPILE_MEMORY_BYTES or upload a smaller checkpoint"
        )
        self.peak_bytes = peak_bytes
        self.limit_bytes = limit_bytes


class CompileDied(PlatformError):
    """The compile process ended without an answer. Another attempt may fare better, up to the limit."""

    code = "compile_died"

    def __init__(self, how: str, peak_bytes: int, detail: str) -> None:
        tail = f": {detail}" if detail else ""
        super().__init__(f"the compile process {how} (peak memory {peak_bytes >> 20} MiB){tail}")
        self.how = how
        self.peak_bytes = peak_bytes


class CompileStopped(PlatformError):
    """The attempt was asked to stop: cancelled, taken over, or the worker shuts down."""

    code = "compile_stopped"

    def __init__(self) -> None:
        super().__init__("the compile was stopped")


class ArtifactUnusable(PlatformError):
    """The compile finished but its artifact does not load or computes nothing sensible."""

    code = "artifact_unusable"
