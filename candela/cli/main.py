"""The `candela` command: dispatch, and the one place where a known error becomes one line and an exit code.

Exit codes: 0 done, 1 failed, 2 misused.
"""

from __future__ import annotations

import sys

import typer

from .failures import KnownFailure, known_failure
from .lazy import LazyGroup

app = typer.Typer(
    cls=LazyGroup,
    name="candela",
    help="Serverless inference with its own search compiler.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root() -> None:
    """Serverless inference with its own search compiler."""


def run() -> None:
    """The console script."""
    try:
        app()
    except Exception as error:
        failure = known_failure(error)
        if failure is None:
            raise
        _tell(failure)
        sys.exit(1)


def _tell(failure: KnownFailure) -> None:
    as_json = "--json" in sys.argv[1:]
    print(failure.as_json() if as_json else f"error: {failure.message}", file=sys.stderr)


if __name__ == "__main__":
    run()
