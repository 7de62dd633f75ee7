"""What can be wrong with a checkpoint: stable codes, a `Problem` a fault, one error for all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from compiler.errors import CompilerError

MAX_PROBLEMS = 200
"""A hopeless upload names this many faults and says that there are more."""


class ProblemCode(StrEnum):
    """Public: clients match on these, so they never change."""

    BAD_NAME = "bad_name"
    DUPLICATE_NAME = "duplicate_name"
    TOO_MANY_FILES = "too_many_files"
    EMPTY_FILE = "empty_file"
    UNEXPECTED_PICKLE = "unexpected_pickle"
    LFS_POINTER = "lfs_pointer"
    MISSING_CONFIG = "missing_config"
    MISSING_TOKENIZER = "missing_tokenizer"
    MISSING_WEIGHTS = "missing_weights"
    AMBIGUOUS_WEIGHTS = "ambiguous_weights"
    MISSING_INDEX = "missing_index"
    BAD_INDEX = "bad_index"
    MISSING_SHARD = "missing_shard"
    TRUNCATED_FILE = "truncated_file"
    TRAILING_DATA = "trailing_data"
    BAD_HEADER = "bad_header"
    UNSUPPORTED_GGUF = "unsupported_gguf"
    UNSUPPORTED_DTYPE = "unsupported_dtype"
    BAD_CONFIG = "bad_config"
    UNKNOWN_ARCHITECTURE = "unknown_architecture"
    UNSUPPORTED_CONFIG = "unsupported_config"
    MISSING_TENSOR = "missing_tensor"
    UNEXPECTED_TENSOR = "unexpected_tensor"
    DUPLICATE_TENSOR = "duplicate_tensor"
    WRONG_SHAPE = "wrong_shape"
    TIED_HEAD_DIFFERS = "tied_head_differs"
    TOO_MANY_PROBLEMS = "too_many_problems"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong: `where` names the file, the tensor or the config field."""

    code: ProblemCode
    message: str
    where: str | None = None


class CheckpointError(CompilerError):
    """A checkpoint that cannot be compiled. `code` is the first problem's; all are in `problems`."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = capped(problems)
        assert self.problems, "an error names at least one problem"
        super().__init__("; ".join(problem.message for problem in self.problems))
        self.code = str(self.problems[0].code)


def refusal(code: ProblemCode, message: str, where: str | None = None) -> CheckpointError:
    """An error about one problem."""
    return CheckpointError([Problem(code, message, where)])


def capped(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """The first `MAX_PROBLEMS` distinct problems, and one more that counts the rest."""
    distinct = tuple(dict.fromkeys(problems))
    if len(distinct) <= MAX_PROBLEMS:
        return distinct
    rest = len(distinct) - MAX_PROBLEMS
    more = Problem(ProblemCode.TOO_MANY_PROBLEMS, f"{rest} more problems are not shown")
    return (*distinct[:MAX_PROBLEMS], more)
