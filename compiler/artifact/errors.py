"""What may be wrong with an artifact."""

from __future__ import annotations

from compiler.errors import CompilerError


class ArtifactError(CompilerError):
    """A directory that is no artifact, or not a whole one. `where` names the file or the field."""

    code = "invalid_artifact"

    def __init__(self, message: str, *, where: str) -> None:
        super().__init__(f"{where}: {message}")
        self.where = where
