"""What this CPU can do, and the levels that kernels are built for: chosen by features, never by host name."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path

from compiler.errors import CompilerError


class UnsupportedCpu(CompilerError):
    """None of the levels on offer runs on this CPU."""

    code = "unsupported_cpu"

    def __init__(self, offered: Collection[str], features: Feature) -> None:
        super().__init__(
            f"this CPU ({features.name or 'no known features'}) runs none of {', '.join(sorted(offered))}; "
            "compile the model for another level"
        )
        self.offered = tuple(offered)
        self.features = features


class Feature(IntFlag):
    """Instruction sets, as the bits of `candela_required_features()` in `abi.h`."""

    SSE42 = 1 << 0
    AVX = 1 << 1
    AVX2 = 1 << 2
    FMA = 1 << 3
    F16C = 1 << 4
    BMI2 = 1 << 5
    AVX512F = 1 << 6
    AVX512BW = 1 << 7
    AVX512DQ = 1 << 8
    AVX512VL = 1 << 9
    AVX512CD = 1 << 10
    AVX512BF16 = 1 << 11
    AVX512VNNI = 1 << 12
    AMX_TILE = 1 << 13
    AMX_BF16 = 1 << 14


_NONE = Feature(0)
_V3 = Feature.SSE42 | Feature.AVX | Feature.AVX2 | Feature.FMA | Feature.F16C | Feature.BMI2
_V4 = _V3 | Feature.AVX512F | Feature.AVX512BW | Feature.AVX512DQ | Feature.AVX512VL | Feature.AVX512CD
_AMX = _V4 | Feature.AVX512BF16 | Feature.AVX512VNNI | Feature.AMX_TILE | Feature.AMX_BF16


@dataclass(frozen=True, slots=True)
class Level:
    """One build of the kernels: the compiler's flags, and what a CPU must have to run them."""

    name: str
    flags: tuple[str, ...]
    required: Feature


_WIDE = "-mprefer-vector-width=512"
PORTABLE = Level("portable", (), _NONE)
X86_64_V3 = Level("x86-64-v3", ("-march=x86-64-v3",), _V3)
X86_64_V4 = Level("x86-64-v4", ("-march=x86-64-v4", _WIDE), _V4)
X86_64_V4_AMX = Level(
    "x86-64-v4-amx",
    ("-march=x86-64-v4", "-mavx512bf16", "-mavx512vnni", "-mamx-tile", "-mamx-bf16", _WIDE),
    _AMX,
)

LEVELS: tuple[Level, ...] = (PORTABLE, X86_64_V3, X86_64_V4, X86_64_V4_AMX)
"""From the least to the most demanding."""

_CPUINFO = Path("/proc/cpuinfo")
_CPUINFO_NAMES = {
    "sse4_2": Feature.SSE42,
    "avx": Feature.AVX,
    "avx2": Feature.AVX2,
    "fma": Feature.FMA,
    "f16c": Feature.F16C,
    "bmi2": Feature.BMI2,
    "avx512f": Feature.AVX512F,
    "avx512bw": Feature.AVX512BW,
    "avx512dq": Feature.AVX512DQ,
    "avx512vl": Feature.AVX512VL,
    "avx512cd": Feature.AVX512CD,
    "avx512_bf16": Feature.AVX512BF16,
    "avx512_vnni": Feature.AVX512VNNI,
    "amx_tile": Feature.AMX_TILE,
    "amx_bf16": Feature.AMX_BF16,
}


def level_named(name: str) -> Level:
    """The level called `name`.

    Raises:
        CompilerError: there is no such level.
    """
    for level in LEVELS:
        if level.name == name:
            return level
    raise CompilerError(f"level {name!r} is none of {', '.join(level.name for level in LEVELS)}")


def best_level(features: Feature, among: Collection[str] | None = None) -> Level:
    """The most demanding level that `features` allow, of those named in `among` (default: all).

    Raises:
        UnsupportedCpu: none of them runs here.
    """
    offered = [level for level in LEVELS if among is None or level.name in among]
    usable = [level for level in offered if level.required & ~features == 0]
    if not usable:
        raise UnsupportedCpu([level.name for level in offered] if among is None else among, features)
    return usable[-1]


def features_in(cpuinfo: str) -> Feature:
    """The features that a `/proc/cpuinfo` lists; the kernel lists only what it lets programs use."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "flags":
            found = (_CPUINFO_NAMES.get(word, _NONE) for word in value.split())
            return Feature(sum(set(found)))
    return _NONE


def host_features() -> Feature:
    """The features of this machine's first CPU; none where there is no `/proc/cpuinfo` or it is no x86-64."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return _NONE
    try:
        return features_in(_CPUINFO.read_text())
    except OSError:
        return _NONE


def usable_cores() -> int:
    """Cores that this process may use: its affinity, at most its control group's quota rounded up."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()[:2]
        return max(1, min(allowed, -(-int(quota) // int(period))))
    except (OSError, ValueError):
        return allowed
