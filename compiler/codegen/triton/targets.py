"""The GPUs that kernels are built for, and the limits of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.codegen.triton.errors import UnknownGpuTarget


@dataclass(frozen=True, slots=True)
class GpuTarget:
    """`shared_bytes` is the most that one program may use, `num_stages` how far loads run ahead."""

    name: str
    backend: str
    arch: int | str
    warp_size: int
    shared_bytes: int
    num_stages: int
    extension: str


def _cuda(arch: int, shared_kib: int) -> GpuTarget:
    return GpuTarget(f"cuda-sm{arch}", "cuda", arch, 32, shared_kib * 1024, 3, "cubin")


_ALL = (
    _cuda(80, 163),
    _cuda(89, 99),
    _cuda(90, 227),
    _cuda(100, 227),
    GpuTarget("hip-gfx942", "hip", "gfx942", 64, 64 * 1024, 2, "hsaco"),
)
TARGETS: Mapping[str, GpuTarget] = {t.name: t for t in _ALL}


def gpu_target(name: str) -> GpuTarget:
    """The target called `name`, such as "cuda-sm90".

    Raises:
        UnknownGpuTarget: there is none.
    """
    if name not in TARGETS:
        raise UnknownGpuTarget(name, tuple(TARGETS))
    return TARGETS[name]
