"""The package's face: lazy names, and one error tree."""

from __future__ import annotations

import subprocess
import sys

import pytest

import compiler
from compiler import errors


def test_importing_the_package_imports_nothing_of_weight():
    script = "import sys, compiler; print(sorted({'numpy', 'torch', 'egglog', 'triton'} & set(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.strip() == "[]"


def test_a_name_loads_on_first_use():
    assert compiler.CompilerError is errors.CompilerError
    assert "CompilerError" in dir(compiler)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = compiler.nothing


@pytest.mark.parametrize(
    "error",
    [
        errors.ShapeError("s"),
        errors.VerifyError("v", where="node"),
        errors.GraphSyntaxError("g", line=3),
        errors.IndexOutOfRange(0, 4, -1, 9),
        errors.UnsupportedModel("u"),
    ],
)
def test_every_error_is_a_compiler_error_with_a_code_and_a_sentence(error):
    assert isinstance(error, errors.CompilerError)
    assert error.code != errors.CompilerError.code
    assert str(error)
