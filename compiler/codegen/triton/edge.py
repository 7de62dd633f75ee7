"""The only module that imports triton: builds a source for a GPU that need not be here, and interprets one.

Triton has no types, so everything untyped stays in this file.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.codegen.triton.errors import GpuError, GpuExtraMissing
from compiler.codegen.triton.targets import GpuTarget
from compiler.ir.dtype import bf16_to_f32, round_to_bf16

Array = npt.NDArray[Any]

ALIGNMENT = 16
"""Bytes that every buffer's address is a multiple of; built kernels rely on it."""
_INTERPRETER_DTYPES: Mapping[str, str] = {
    "*fp32": "float32",
    "*bf16": "bfloat16",
    "*fp16": "float16",
    "*i32": "int32",
    "*i8": "int8",
}


class BuildRefused(GpuError):
    """Triton, LLVM or the assembler did not accept a kernel."""

    code = "gpu_build_refused"


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """Triton's options for one kernel."""

    num_warps: int = 4
    num_stages: int = 3


@dataclass(frozen=True, slots=True)
class Built:
    """A binary, the assembly it was made from, and the bytes of shared and scratch memory that it needs."""

    code: bytes
    assembly: str
    symbol: str
    warps: int
    shared_bytes: int
    scratch_bytes: int


def triton_version() -> str:
    """The version of the triton that is installed.

    Raises:
        GpuExtraMissing: none is.
    """
    return str(_triton("building GPU kernels").__version__)


def build(
    module: Path,
    function: str,
    signature: Mapping[str, str],
    target: GpuTarget,
    options: BuildOptions,
    cache: Path,
) -> Built:
    """Build the function of a module file. Needs no GPU; `cache` is a folder that Triton may fill.

    Raises:
        GpuExtraMissing: triton is not installed.
        BuildRefused: it did not accept the kernel.
    """
    triton = _triton(f"target {target.name}")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    aligned = {
        (i,): [["tt.divisibility", ALIGNMENT]] for i, t in enumerate(signature.values()) if t.startswith("*")
    }
    settings = {"num_warps": options.num_warps, "num_stages": options.num_stages, "enable_fp_fusion": True}
    with _settings(triton, cache):
        source = ASTSource(getattr(_load(module), function), dict(signature), {}, aligned)
        gpu = GPUTarget(target.backend, target.arch, target.warp_size)
        try:
            made = triton.compile(source, target=gpu, options=settings)
        except (triton.TritonError, RuntimeError, ValueError) as error:
            raise BuildRefused(" ".join(str(error).split())) from error
    assembly = made.asm["ptx" if target.backend == "cuda" else "amdgcn"]
    facts = made.metadata
    return Built(
        made.asm[target.extension],
        assembly,
        facts.name,
        facts.num_warps,
        facts.shared,
        facts.global_scratch_size,
    )


def launch(
    module: Path, function: str, types: Sequence[str], arguments: Sequence[Array | int], programs: int
) -> None:
    """Interpret a function over host arrays. The process must have been told so before it imported triton."""
    triton = _triton("the interpreter")
    assert triton.knobs.runtime.interpret, "TRITON_INTERPRET was not set in time"
    _treat_bf16_as_hardware_does()
    wrapped = [
        _HostTensor(a, _INTERPRETER_DTYPES[t]) if isinstance(a, np.ndarray) else a
        for a, t in zip(arguments, types, strict=True)
    ]
    with np.errstate(all="ignore"):
        getattr(_load(module), function)[(programs,)](*wrapped)


def _triton(wanted_for: str) -> Any:
    try:
        import triton
    except ImportError as error:
        raise GpuExtraMissing(wanted_for) from error
    return triton


@contextmanager
def _settings(triton: Any, cache: Path) -> Iterator[None]:
    """Binaries that do not name our files, made anew each time, with nothing left in the home folder."""
    with triton.knobs.compilation.scope(), triton.knobs.cache.scope(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        triton.knobs.compilation.disable_line_info = True
        triton.knobs.cache.dir = str(cache)
        yield


def _load(path: Path) -> ModuleType:
    """The module of a file; Triton reads the function's source through it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _HostTensor:
    """An array behind the few methods of a torch tensor that the interpreter calls; it is its own storage."""

    def __init__(self, array: Array, dtype: str) -> None:
        self._array = array
        self.dtype = dtype

    def data_ptr(self) -> int:
        return int(self._array.ctypes.data)

    def untyped_storage(self) -> _HostTensor:
        return self

    def cpu(self) -> _HostTensor:
        return self

    def copy_(self, other: _HostTensor) -> None:
        assert other._array is self._array

    def new_empty(self, count: int, device: str) -> _HostTensor:
        return _HostTensor(self._array, self.dtype)

    def set_(self, storage: _HostTensor, offset: int, size: object, stride: object) -> None:
        self._array = storage._array

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return self._array.shape

    def stride(self) -> tuple[int, ...]:
        return self._array.strides


def _treat_bf16_as_hardware_does() -> None:
    """The interpreter cuts a float short when it narrows it to bf16, and multiplies the bits of two bf16
    matrices as integers; compiled code rounds to the nearest, and multiplies what the bits mean.
    """
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder

    if getattr(InterpreterBuilder, "knows_bf16", False):
        return
    narrow, multiply = InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot

    def cast(self: Any, source: Any, dtype: Any) -> Any:
        if source.dtype.scalar == tl.float32 and dtype.scalar == tl.bfloat16:
            data = bf16_to_f32(round_to_bf16(source.data))
            source = type(source)(data.reshape(source.data.shape), source.dtype)
        return narrow(self, source, dtype)

    def dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        wide = (x if x.dtype.scalar != tl.bfloat16 else narrow(self, x, tl.float32) for x in (a, b))
        return multiply(self, *wide, *rest)

    InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot = cast, dot
    InterpreterBuilder.knows_bf16 = True
