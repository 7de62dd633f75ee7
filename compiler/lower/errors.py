"""What the lowering refuses."""

from __future__ import annotations

from compiler.errors import CompilerError


class LoweringError(CompilerError):
    """A graph without an index form."""

    code = "lowering_failed"


class FormationError(CompilerError):
    """A definition that a schedule cannot turn into a tile program; the search drops the candidate."""

    code = "formation_failed"


class TileError(CompilerError):
    """A tile program that breaks a rule of its form: a fault of ours, found by the verifier."""

    code = "tile_program_invalid"
