"""`python -m candela.cli`, for when the console script is not on the path."""

from .main import run

run()
