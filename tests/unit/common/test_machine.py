"""How much of the machine a process may use."""

from __future__ import annotations

from pathlib import Path

from common.machine import usable_cores, usable_memory_bytes


def test_without_a_container_the_whole_machine_is_usable(tmp_path: Path) -> None:
    assert usable_memory_bytes(tmp_path) > 1 << 20
    assert usable_cores(tmp_path) >= 1


def test_a_container_limits_memory(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("12345678\n")
    assert usable_memory_bytes(tmp_path) == 12345678


def test_an_unlimited_container_limits_nothing(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert usable_memory_bytes(tmp_path) > 12345678
    assert usable_cores(tmp_path) >= 1


def test_a_share_of_cpu_time_limits_the_cores(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert usable_cores(tmp_path) == 0.5
