"""What `candela doctor` concludes from what it sees."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from candela.cli.checks import (
    Verdict,
    check_compiler,
    check_cpu,
    check_data_dir,
    check_disk,
    check_memory,
    check_packages,
    check_port,
    check_python,
    run_checks,
)
from candela.up import DataDir, UpSettings
from compiler.runtime.cpu import X86_64_V3, Feature

GIB = 1 << 30


def test_an_old_python_fails_with_its_fix() -> None:
    finding = check_python((3, 10))
    assert finding.verdict is Verdict.FAILED
    assert finding.fix is not None


def test_the_packages_of_this_environment_are_all_there() -> None:
    assert check_packages().verdict is Verdict.OK


def test_the_compiler_of_this_machine_builds_a_kernel() -> None:
    assert check_compiler(None).verdict is Verdict.OK


def test_a_compiler_is_tried_and_not_only_found(tmp_path: Path) -> None:
    impostor = tmp_path / "c++"
    impostor.write_text(
        "#!/bin/sh\necho 'impostor 1.0'\n[ \"$1\" = --version ] || { echo no disk >&2; exit 1; }\n"
    )
    impostor.chmod(0o755)
    finding = check_compiler(str(impostor))
    assert finding.verdict is Verdict.FAILED
    assert "no disk" in finding.detail


def test_no_compiler_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = check_compiler(None)
    assert finding.verdict is Verdict.FAILED
    assert "apt-get install g++" in str(finding.fix)


def test_a_cpu_without_wide_vectors_is_slow_but_no_failure() -> None:
    assert check_cpu(X86_64_V3.required, 2).verdict is Verdict.OK
    assert check_cpu(Feature.SSE42, 2).verdict is Verdict.WARNING


@pytest.mark.parametrize(
    ("available", "verdict"),
    [(8 * GIB, Verdict.OK), (3 * GIB // 2, Verdict.WARNING), (GIB // 2, Verdict.FAILED)],
)
def test_memory_is_judged_by_what_is_available(available: int, verdict: Verdict) -> None:
    assert check_memory(available, 16 * GIB).verdict is verdict


@pytest.mark.parametrize(
    ("free", "verdict"), [(9 * GIB, Verdict.OK), (2 * GIB, Verdict.WARNING), (GIB // 2, Verdict.FAILED)]
)
def test_disk_is_judged_by_what_is_free(free: int, verdict: Verdict) -> None:
    assert check_disk(free).verdict is verdict


def test_a_taken_port_names_the_option(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        finding = check_port(DataDir(tmp_path), "127.0.0.1", taken.getsockname()[1])
    assert finding.verdict is Verdict.FAILED
    assert finding.fix == "candela up --port 0"


def test_a_data_dir_that_cannot_be_made_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert check_data_dir(DataDir(tmp_path / "file" / "home")).verdict is Verdict.FAILED


def test_every_failed_check_names_a_fix(tmp_path: Path) -> None:
    findings = list(run_checks(UpSettings(data_dir=tmp_path, port=0)))
    assert len(findings) == 9
    assert all(finding.fix is not None for finding in findings if finding.verdict is not Verdict.OK)
